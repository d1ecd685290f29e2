//! Operations of the queue as values, and a check of concurrent operations: their results must equal those of some sequential order.

#![allow(clippy::missing_panics_doc, reason = "a panic is how a model fails")]

mod case;
mod op;
mod scene;
mod task;

pub use case::Case;
pub use op::Op;
pub use scene::Start;
pub use task::For;
