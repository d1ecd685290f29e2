//! Counters for the coverage of random tests: events, pairs of events, and cells of the queue's state table. A test can require that each of them
//! occurred.

pub mod events;
pub mod pairs;
pub mod states;
