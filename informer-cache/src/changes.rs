//! PURE. What a write is to those who follow the store: changes, merged per key for each subscription.

pub(crate) mod buffer;
pub(crate) mod change;
pub(crate) mod due;
pub(crate) mod pending;
pub(crate) mod selection;
pub(crate) mod step;

pub use self::change::{Change, ChangeKind};
