//! SHELL. The path of a change from a write to the subscribers and observers of the store. Each change is built once, and coalesced per key for each
//! subscription.

pub(crate) mod buffer;
mod change;
pub(crate) mod findings;
pub(crate) mod observer_fn;
pub(crate) mod pending;
pub(crate) mod selection;

pub use self::change::{Change, ChangeKind};
