//! Counts the events, pairs of events and cells of a state table that a random run has covered, so that a test can require all of them.

pub mod events;
pub mod pairs;
pub mod states;
