//! Helpers of the models of the cache.

#![allow(clippy::missing_panics_doc, reason = "a panic is how a model fails")]

pub mod object;
pub mod quiet;
