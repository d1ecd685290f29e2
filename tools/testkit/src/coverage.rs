//! What a random run has entered: events, pairs of events, and cells of a state table, so that a test may ask for all of them.

pub mod events;
pub mod pairs;
pub mod states;
