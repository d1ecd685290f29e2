#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod informer;
mod names;
mod source;
mod source_error;
mod stream_source;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;

pub use crate::informer::{informer, reflector_config};
pub use crate::names::{key_of, key_of_ref, object_ref, schema};
pub use crate::source::{ApiSource, ApiWatch, Skipped};
pub use crate::source_error::{ApiError, watcher_error};
pub use crate::stream_source::{StreamSource, StreamWatch, informer_of};
pub use crate::throttle::{Throttle, Throttled, Waits};
