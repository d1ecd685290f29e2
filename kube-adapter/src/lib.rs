#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod controller;
mod informer;
mod keys;
mod selector;
mod source;
mod throttle;

pub use crate::config::{Config, QueueOrder};
pub use crate::controller::{
    CacheStatus, Controller, ControllerStore, Monitor, ReconcileStream, UnknownAction, WatchFailure,
    action_delay,
};
pub use crate::informer::{informer, reflector_config};
pub use crate::keys::{object_key, schema};
pub use crate::selector::{SelectorError, SelectorExt};
pub use crate::source::{
    ApiError, ApiSource, ApiWatch, StreamSource, StreamWatch, UnreadableCounter, informer_from_stream,
    unreadable_reason,
};
pub use crate::throttle::{ThrottleLayer, ThrottleStats, Throttled, ThrottledFuture};
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
