#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod names;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;

pub use crate::names::{key_of, key_of_ref, object_ref, schema};
pub use crate::throttle::{Throttle, Throttled, Waits};
