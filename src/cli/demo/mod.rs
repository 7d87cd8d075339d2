//! `argiope demo`: a web of many hosts on the loopback device, crawled through real sockets and
//! then asked what it saw.

pub mod web;

mod server;

mod site;

mod answer;

mod ledger;

pub mod report;

mod http;

mod dns;

mod gzip;

mod stamp;
