#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
// Public, but hidden in the docs: tests run random elections on this pure state machine.
#[doc(hidden)]
pub mod candidate;
mod driver;
mod election;
mod leadership;
mod lease_api;
mod status;

pub use crate::builder::{ElectionBuilder, unique_identity};
pub use crate::candidate::{InvalidElectionConfig, LossReason};
pub use crate::election::{Election, ElectionOutcome};
pub use crate::leadership::Leadership;
pub use crate::status::{LeaderStatus, LeaseOverrun};
