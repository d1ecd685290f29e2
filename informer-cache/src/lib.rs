#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod change;
mod error;
mod event;
mod key;
mod schema;
mod source;
mod sync;
mod version;

pub use crate::change::{Change, ChangeKind};
pub use crate::error::{
    DuplicateIndex, IndexError, MissingIndex, ParseKeyError, ParseVersionError, WaitForError,
};
pub use crate::event::Event;
pub use crate::key::NamespacedName;
pub use crate::schema::Schema;
pub use crate::source::{
    ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, Watch, WatchRequest,
};
pub use crate::version::Version;
