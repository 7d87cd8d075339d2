#![doc = include_str!("settings.md")]

#[doc(inline)]
pub use crate::crawl::config::{
    BackEnd, Preset, Problem, Setting, SettingSource, SettingValue, presets, settings as all, span,
};
#[doc(hidden)]
pub use crate::crawl::config::{HostsBound, Lack, PublicHosts, interval_of_rate};
#[doc(inline)]
pub use crate::frontier::settings::Follow;
#[doc(inline)]
pub use crate::throttle::settings::{
    AutoThrottle, AutoThrottleMode, Backoff, Jitter, LatencyFrom, Manager, Oversize, Quota, Rampup,
    ScopePatch, ScopeSettings, ThrottleSettings, WindowKind,
};
