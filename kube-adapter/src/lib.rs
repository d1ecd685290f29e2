#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod controller;
mod informer;
mod keys;
mod source;
mod throttle;

pub use crate::config::{Config, Turns};
pub use crate::controller::{
    CacheState, Controller, Monitor, Reconciles, Store, UnknownAction, WatchFailure, requeue_after,
};
pub use crate::informer::{informer, reflector_config};
pub use crate::keys::{key_of, key_of_ref, object_ref, schema};
pub use crate::source::{
    ApiError, ApiSource, ApiWatch, Skipped, StreamSource, StreamWatch, informer_of, unreadable, watcher_error,
};
pub use crate::throttle::{Throttle, Throttled, ThrottledFuture, Waits};
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
