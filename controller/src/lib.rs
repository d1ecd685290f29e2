#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
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
mod watch_status;

pub use crate::builder::Controller;
pub use crate::config::{ControllerConfig, Workers};
pub use crate::error::{AddWatchError, InvalidControllerConfig, RunError};
pub use crate::health::{Health, NotLive, NotReady};
pub use crate::metrics::ControllerMetrics;
pub use crate::reconcile::{Action, Context, FailureClass, ReconcileError, ReconcileOutcome};
pub use crate::report::RunReport;
pub use crate::run::batch_config::BatchConfig;
pub use crate::run::controller_handle::{ControllerHandle, WatchId};
pub use crate::run::into_keys::IntoKeys;
pub use crate::run::watch_options::WatchOptions;
pub use crate::shard::{InvalidShard, Shard};
pub use crate::watch_status::WatchStatus;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
