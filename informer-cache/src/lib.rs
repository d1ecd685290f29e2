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
mod watch;

pub use crate::changes::{Change, ChangeKind};
pub use crate::error::{
    DuplicateIndex, IndexError, MissingIndex, ParseNamespacedNameError, ParseVersionError, Stopped,
    WaitForError,
};
pub use crate::index::{
    AnyIndex, Index, LabelIndex, ParseSelectorError, Selector, SelectorOperator, SelectorRequirement,
};
pub use crate::informer::{
    ConfigDifference, ErrorRecord, Informer, InformerBuildError, InformerBuilder, InformerSet,
    InformerStartError, InformerState, InformerStatus, NotSynced, PreparedInformer, RetryBackoff,
    SharedInformer, SourceFailure,
};
pub use crate::reflector::{
    BackoffCause, InvalidReflectorConfig, ListRequest, ListVersion, Page, ReflectorBackoff, ReflectorConfig,
    Source, SourceError, SourceErrorKind, WatchEvent, WatchRequest, WatchStream,
};
// Exported for randomised tests, which drive the state machine directly, with arbitrary inputs.
#[doc(hidden)]
pub use crate::reflector::{EventVerdict, Reflector, ReflectorPhase, ReflectorRequest};
pub use crate::schema::{NamespacedName, Schema, Version};
pub use crate::store::{
    IndexMemoryUsage, Lister, MemoryUsage, RangeIter, Relist, RetainedSnapshots, SharedWriter, Snapshot,
    Store, StoreBuilder, Transaction, TtlWriter, WriteOutcome, Writer,
};
pub use crate::watch::{
    HandlerExit, HandlerRegistration, InitialProcessed, Observer, Subscription, SubscriptionBuilder,
    SubscriptionEvent,
};
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{
    Clock, ManualClock, Monotonic, Nanos, ThreadTimer, Timer, block_on, block_on_timeout,
};
