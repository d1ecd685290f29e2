//! Operations, oracles, types that panic on demand and seeded random cases, shared by tests, fuzz targets, models and benches.
//!
//! This crate depends on no primitive, so testing one crate's features does not enable another crate's.

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
