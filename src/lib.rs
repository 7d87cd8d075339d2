#![doc = include_str!("../README.md")]

#[cfg(not(target_os = "linux"))]
compile_error!("argiope runs on Linux only: it lives on epoll, timerfd and kernel receive stamps");

pub mod base;
pub mod io;
pub mod wire;
pub mod fetch;
pub mod throttle;
pub mod frontier;
pub mod sink;
pub mod crawl;
