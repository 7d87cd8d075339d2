//! The log of runs, for those who check later that the crawl kept its promises: `runs.jsonl`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::crawl::core::Core;
use crate::crawl::finish::FinishReason;
use crate::io::Io;
use crate::throttle::engine::effective::EntrySettings;
use crate::throttle::settings::{Jitter, RateLimitHeaders};

impl<I: Io> Core<I> {
    /// Logs the beginning of this run, and what changes its settings from now on.
    pub fn log_runs(&mut self, path: PathBuf, length: u64) {
        let at = self.network.wall_at(self.network.clock()).to_string();
        let settings = self.politeness();
        let is_paused = self.control.is_to_pause();
        let log = self.output.run_log_mut();
        log.start(path, length);
        log.add(&json!({
            "event": "start",
            "at": at,
            "version": env!("CARGO_PKG_VERSION"),
            "resumed": log.is_resumed,
            "committed": log.committed.map(|at| at.to_string()),
            "paused": is_paused,
            "settings": settings,
        }));
        self.wake_host();
    }

    /// Logs that settings have changed: all of them.
    pub fn log_settings(&mut self) {
        if !self.output.run_log().is_on() {
            return;
        }
        self.finish_scope_log();
        let at = self.network.wall_at(self.now).to_string();
        let line = json!({"event": "settings", "at": at, "settings": self.politeness()});
        self.output.run_log_mut().add(&line);
    }

    /// Logs the end of this run: nothing more is sent.
    pub fn log_end(&mut self, reason: FinishReason) {
        if self.output.run_log().is_on() {
            self.finish_scope_log();
            let at = self.network.wall_at(self.network.clock()).to_string();
            let line = json!({"event": "end", "at": at, "reason": reason.as_str()});
            self.output.run_log_mut().add(&line);
        }
    }

    /// What limits the scopes of each entry.
    fn entries(&self) -> Map<String, Value> {
        let names = self.throttle.settings().scopes.keys();
        names
            .filter_map(|name| Some((name.clone(), of_entry(&self.throttle.entry_settings(name)?))))
            .collect()
    }

    /// All settings that limit what is sent, and when. None of them is a secret.
    fn politeness(&self) -> Value {
        let throttle = self.throttle.settings();
        let (config, frontier) = (&self.config, self.frontier.settings());
        let maps = throttle.scope_map.iter().map(|kind| kind.as_str());
        json!({
            "user_agent": config.fetch.user_agent,
            // Not less while this machine is short of sockets.
            "concurrent_requests": config.throttle.concurrent_requests,
            "concurrent_requests_per_ip": throttle.concurrent_requests_per_ip,
            "scope_map": maps.collect::<Vec<_>>(),
            "default": of_entry(&self.throttle.default_settings()),
            "scopes": self.entries(),
            "robots": {
                "obeyed": frontier.robots_obey,
                "agent": frontier.robots_agent,
                "crawl_delay": throttle.robotstxt_obey,
                "crawl_delay_max": seconds(throttle.robotstxt_max_delay),
                "keeps_concurrency": throttle.robotstxt_keep_concurrency,
            },
            "holds": {
                "ratelimit_headers": match throttle.rate_limit_headers {
                    RateLimitHeaders::Always => "always",
                    RateLimitHeaders::Backoff => "backoff",
                    RateLimitHeaders::Off => "off",
                },
                "obeyed_fully": throttle.obey_fully,
                "redirect_max": seconds(throttle.redirect_max_delay),
            },
            "allow_net": config.allow_net,
            "exclude_nets": config.exclude_nets,
            "exclude_hosts": config.frontier.exclude_hosts,
            "excluded": self.frontier.excluded().texts(),
            "proxied": !frontier.proxies.are_none(),
        })
    }
}

/// The settings of the scopes under an entry that limit what is sent.
pub fn of_entry(entry: &EntrySettings) -> Value {
    let of = &entry.settings;
    json!({
        "concurrency": of.concurrency,
        "delay": seconds(of.delay),
        "delay_per_slot": seconds(of.delay_per_slot),
        "jitter": range(of.jitter),
        "backoff_jitter": of.backoff.enabled.then(|| range(of.backoff.jitter)),
        "hold_until": of.hold_until.map(|at| at.to_string()),
        "hold_max": seconds(of.backoff.max_delay),
        "rampup_min_delay": of.rampup.as_ref().map(|rampup| seconds(rampup.min_delay)),
        "requests_per_minute": of.requests_per_minute,
        "managed": of.manager.is_some(),
        "own_delay": entry.has_own_delay,
        "own_concurrency": entry.has_own_concurrency,
    })
}

fn range(jitter: Jitter) -> [f64; 2] {
    [jitter.low, jitter.high]
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}
