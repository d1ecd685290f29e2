#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod cache_status;
mod config;
mod error;
mod health;
mod metrics;
pub mod predicate;
mod reconcile;
mod report;
mod run;
mod shard;
#[cfg(feature = "testing")]
pub mod testing;

pub use crate::builder::Controller;
pub use crate::cache_status::{CacheStatus, Caches};
pub use crate::config::Settings;
pub use crate::error::{Awaited, ConfigError, RunError};
pub use crate::health::{Health, NotLive, NotReady};
pub use crate::metrics::Metrics;
pub use crate::reconcile::{Action, Class, Context, Failure, Outcome};
pub use crate::report::{Report, Times};
pub use crate::run::batch_config::Batches;
pub use crate::shard::{NoSuchShard, Shard};
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
