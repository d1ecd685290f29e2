#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
mod attempt;
mod batch;
mod batch_worker;
mod batches;
mod caches;
mod class;
mod classes;
mod config;
mod context;
mod controller;
mod error;
mod events;
mod failure;
mod guard;
mod health;
mod metrics;
mod outcome;
mod pace;
pub mod predicate;
mod remap;
mod report;
mod run;
mod runtime;
mod scaling;
mod settings;
mod shard;
mod spans;
mod staff;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use crate::action::Action;
pub use crate::batches::Batches;
pub use crate::caches::{CacheStatus, Caches};
pub use crate::class::Class;
pub use crate::context::Context;
pub use crate::controller::Controller;
pub use crate::error::{Awaited, ConfigError, RunError};
pub use crate::failure::Failure;
pub use crate::health::{Health, NotLive, NotReady};
pub use crate::metrics::Metrics;
pub use crate::outcome::Outcome;
pub use crate::report::{Report, Times};
pub use crate::settings::Settings;
pub use crate::shard::{NoSuchShard, Shard};
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
