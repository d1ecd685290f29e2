//! SHELL. Delivers the changes of a write to the subscribers and observers of the store. Each change is built once; each subscription coalesces its
//! changes per key.

pub(crate) mod buffer;
mod change;
pub(crate) mod findings;
pub(crate) mod observer_fn;
pub(crate) mod pending;
pub(crate) mod selection;
pub(crate) mod subscribers;

pub use self::change::{Change, ChangeKind};
