#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod board;
mod builder;
mod caught_up;
mod change;
mod due;
mod error;
mod event;
mod feed;
mod handler;
mod held;
mod index;
mod informer;
mod informer_set;
mod inner;
mod interest;
mod key;
mod lister;
mod memory;
mod observer;
mod outcome;
mod pending;
mod persist;
mod query;
mod recipe;
mod record;
mod reflector;
mod relist;
mod schema;
mod seats;
mod seed;
mod selector;
mod snapshot;
mod source;
mod status;
mod step;
mod stop;
mod store;
#[cfg(feature = "stream")]
mod stream;
mod subscription;
mod synced;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod ttl;
mod version;
mod wait_for;
mod wait_for_key;
mod waiters;
mod wakers;

pub use crate::builder::StoreBuilder;
pub use crate::caught_up::CaughtUp;
pub use crate::change::{Change, ChangeKind};
pub use crate::error::{
    DuplicateIndex, IndexError, MissingIndex, ParseKeyError, ParseVersionError, Stopped, WaitForError,
};
pub use crate::event::Event;
pub use crate::handler::{Handler, HandlerEnd, Handling};
pub use crate::held::HeldSnapshots;
pub use crate::index::{AnyIndex, Index, Labels, OrderedIndex};
pub use crate::informer::{BuildError, Informer, InformerBuilder, NoTimer, PreparedInformer, SourceFailure};
pub use crate::informer_set::{InformerName, InformerSet, NotSynced, SharedInformer, StartError};
pub use crate::key::NamespacedName;
pub use crate::lister::Lister;
pub use crate::memory::{IndexMemory, Memory};
pub use crate::observer::Observer;
pub use crate::outcome::Outcome;
pub use crate::query::{Matches, Query};
pub use crate::reflector::{
    BackoffConfig, Cause, ConfigError, Phase, Reflector, ReflectorConfig, Step, Verdict,
};
pub use crate::schema::Schema;
pub use crate::selector::{ParseSelectorError, Selector};
pub use crate::snapshot::{Range, Snapshot};
pub use crate::source::{
    ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, Watch, WatchRequest,
};
pub use crate::status::{InformerState, LastError, Status};
pub use crate::store::{Relist, SharedWriter, Store, Transaction, Writer};
pub use crate::subscription::{
    BoundedSubscription, Lag, Lagged, NextChange, NextTold, Overflow, Subscription, SubscriptionBuilder, Told,
};
#[cfg(feature = "testing")]
pub use crate::testing::{Asked, ScriptedSource, ScriptedWatch};
pub use crate::ttl::{Timed, TtlSnapshot, TtlStore, TtlStoreBuilder};
pub use crate::version::Version;
pub use crate::wait_for::WaitFor;
pub use crate::wait_for_key::WaitForKey;
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use flyball_sync::TokioTimer;
#[doc(no_inline)]
pub use flyball_sync::{Clock, ManualClock, Monotonic, Nanos, ThreadTimer, Timer};
