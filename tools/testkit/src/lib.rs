//! Operations, slow obvious oracles, types that panic on demand and seeds, shared by tests, fuzz targets, models and benches.
//!
//! Depends on no primitive, so that testing one crate's features never switches on another's.

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
