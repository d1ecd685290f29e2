//! SHELL. Changes on their way from a write to those who follow the store: built once, merged per key for each subscription.

pub(crate) mod buffer;
mod change;
pub(crate) mod findings;
pub(crate) mod observer_fn;
pub(crate) mod pending;
pub(crate) mod selection;

pub use self::change::{Change, ChangeKind};
