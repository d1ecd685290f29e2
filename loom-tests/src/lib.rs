//! Models of the concurrent operations of the queue, the limiters and the cache, and the runner that checks the claims of the models.
//!
//! A model is written once and runs in three ways:
//!
//! | build | what one test does |
//! |---|---|
//! | `--cfg flyball_loom` | every interleaving within the preemption bound; their number is compared with the recorded floor |
//! | `--cfg flyball_shuttle` | ten thousand random and ten thousand PCT schedules |
//! | neither | one run of the body on real threads, which checks that it compiles and passes |
//!
//! A body spawns threads with [`thread`] and runs futures with [`block_on`]. [`Arc`] is std's in all three builds. The code
//! under test takes its locks and atomics from flyball-sync, so a body needs no locks and atomics of its own. `cargo xtask loom` runs the
//! models and their seeded faults; `MODELS.md` lists them.

pub mod cache;
#[cfg(flyball_loom)]
mod checkpoint;
mod engine;
pub mod queue_ops;
mod report;
mod runner;
pub mod thread;
pub mod wakers;

pub use std::sync::Arc;

pub use crate::runner::{Model, model, models, once};
pub use crate::wakers::block_on;
