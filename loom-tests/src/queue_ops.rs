//! Every public operation of the queue as a value, and the check of several concurrent ones: their results must equal those of a sequential order.

#![allow(clippy::missing_panics_doc, reason = "a panic is how a model fails")]

mod case;
mod op;
mod scene;
mod task;

pub use case::Case;
pub use op::Op;
pub use scene::Start;
pub use task::For;
