#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod controller;
mod informer;
mod keys;
pub mod predicate;
mod selector;
mod source;
mod throttle;

pub use crate::config::{Config, QueueOrder};
pub use crate::controller::{
    CacheStatus, Controller, ControllerStore, Monitor, ReconcileInFlight, ReconcileStream, UnknownAction,
    WatchFailure, action_delay, applier,
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
pub use flyball_controller::{ControllerMetrics, FailureClass, NotLive, NotReady};
#[doc(no_inline)]
pub use flyball_informer_cache::{
    Change, ChangeKind, Index, Informer, InformerBuilder, LabelIndex, MissingIndex, NamespacedName,
    ReflectorConfig, Schema, Selector, Snapshot, SourceFailure, Stopped, Store, Subscription,
};
#[doc(no_inline)]
pub use flyball_kube_lease::Leadership;
#[doc(no_inline)]
pub use flyball_ratelimit::{Policy, Quota};
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, Timer, TokioTimer};
#[doc(no_inline)]
pub use flyball_workqueue::{QueueMetrics, QueueStats};
#[doc(no_inline)]
pub use kube::runtime::controller::{
    Action, ReconcileReason, ReconcileRequest, trigger_owners, trigger_self, trigger_with,
};
