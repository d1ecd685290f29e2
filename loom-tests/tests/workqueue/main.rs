//! The models of flyball-workqueue.

mod limits;
mod orders;
mod pairs;
mod queue;
mod quiet;
mod triples;
mod waits;
