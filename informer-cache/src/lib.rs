#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod changes;
mod error;
mod index;
mod informer;
mod reflector;
mod schema;
mod signal;
mod store;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod ttl;
mod watch;

pub use crate::changes::{Change, ChangeKind};
pub use crate::error::{
    DuplicateIndex, IndexError, MissingIndex, ParseKeyError, ParseVersionError, Stopped, TimedOut,
    WaitForError,
};
pub use crate::index::{
    AnyIndex, CapturingIndex, Index, Labels, OrderedIndex, ParseSelectorError, Selector, SelectorOperator,
    SelectorRequirement,
};
pub use crate::informer::{
    BuildError, ConfigDifference, Informer, InformerBuilder, InformerName, InformerSet, InformerState,
    LastError, NoTimer, NotSynced, PreparedInformer, SharedInformer, SourceFailure, StartError, Status,
};
pub use crate::reflector::{
    BackoffConfig, Cause, ConfigError, Event, ListRequest, ListVersion, Page, Phase, Reflector,
    ReflectorConfig, Source, SourceError, SourceErrorKind, Step, Verdict, Watch, WatchRequest,
};
pub use crate::schema::{NamespacedName, Schema, Version};
pub use crate::store::{
    HeldSnapshots, IndexMemory, Lister, Matches, Memory, Outcome, Query, Range, Relist, SharedWriter,
    Snapshot, Store, StoreBuilder, Transaction, WaitFor, WaitForKey, Writer,
};
#[cfg(feature = "testing")]
pub use crate::testing::{Asked, ScriptedSource, ScriptedWatch};
pub use crate::ttl::{Timed, TtlSnapshot, TtlStore, TtlStoreBuilder};
pub use crate::watch::{
    BoundedSubscription, CaughtUp, Handler, HandlerEnd, Handling, Lag, Lagged, NextChange, NextTold,
    Observer, Overflow, Subscription, SubscriptionBuilder, Told,
};
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, ThreadTimer, Timer};
