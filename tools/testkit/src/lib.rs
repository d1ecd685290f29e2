//! Code that tests, fuzz targets, models and benches share: operations, oracles, types that panic on demand, and seeded random cases.
//!
//! This crate does not depend on any flyball crate. If it did, a test of one crate could enable features of a different one.

pub mod allocator;
pub mod client_go;
pub mod coverage;
pub mod deadline_op;
pub mod oracle;
pub mod panicking;
pub mod queue_answers;
pub mod queue_op;
pub mod queue_setup;
pub mod random;
pub mod store_op;
pub mod wakers;
