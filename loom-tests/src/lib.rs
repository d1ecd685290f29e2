//! Models of every concurrent operation of the family, and the runner that keeps them honest.
//!
//! A model is written once and runs in three ways:
//!
//! | build | what one test does |
//! |---|---|
//! | `--cfg flyball_loom` | every interleaving within the preemption bound, counted against the recorded floor |
//! | `--cfg flyball_shuttle` | ten thousand random and ten thousand PCT schedules |
//! | neither | the body once, on real threads: it compiles and holds |
//!
//! A body takes threads from [`thread`] and runs futures with [`block_on`]. [`Arc`] is std's in all three builds; the
//! locks and atomics come from flyball-sync, so a body needs none. `cargo xtask loom` runs the
//! models and their seeded faults; `MODELS.md` lists them.

pub mod cache;
mod engine;
pub mod queue_ops;
mod report;
mod runner;
pub mod thread;
pub mod wakers;

pub use std::sync::Arc;

pub use crate::runner::{Model, model, models, once};
pub use crate::wakers::block_on;
