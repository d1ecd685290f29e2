//! Every public operation of the queue as a value, and how several of them at once are judged: by what they come to one after the other.

#![allow(clippy::missing_panics_doc, reason = "a panic is how a model fails")]

mod case;
mod op;
mod scene;
mod task;

pub use case::Case;
pub use op::Op;
pub use scene::Start;
pub use task::For;
