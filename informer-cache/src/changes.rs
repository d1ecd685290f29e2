//! PURE. What a write is to those who follow the store: changes, merged per key for each subscription.

pub(crate) mod buffer;
mod change;
pub(crate) mod findings;
pub(crate) mod pending;
pub(crate) mod selection;

pub use self::change::{Change, ChangeKind};
