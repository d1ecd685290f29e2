//! What a queue tells of itself, and what can be read of it.

mod hostile;
mod meanings;
