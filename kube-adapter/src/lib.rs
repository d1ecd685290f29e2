#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
mod classes;
mod config;
mod controller;
mod failed;
mod informer;
mod limit;
mod monitor;
mod names;
mod source;
mod source_error;
mod store;
mod stream_source;
mod throttle;

pub use crate::action::{UnknownAction, requeue_after};
pub use crate::config::{Config, Turns};
pub use crate::controller::{CacheState, Controller, Reconciles, WatchFailure};
pub use crate::informer::{informer, reflector_config};
pub use crate::monitor::Monitor;
pub use crate::names::{key_of, key_of_ref, object_ref, schema};
pub use crate::source::{ApiSource, ApiWatch, Skipped, unreadable};
pub use crate::source_error::{ApiError, watcher_error};
pub use crate::store::Store;
pub use crate::stream_source::{StreamSource, StreamWatch, informer_of};
pub use crate::throttle::{Throttle, Throttled, ThrottledFuture, Waits};
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
