#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod names;

pub use crate::names::{key_of, key_of_ref, object_ref, schema};
