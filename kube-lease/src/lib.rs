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
mod run;
mod single_attempt;
mod status;

pub use crate::builder::{ElectionBuilder, unique_identity};
pub use crate::candidate::{InvalidElectionConfig, LossReason};
pub use crate::election::{Election, ElectionOutcome};
pub use crate::leadership::Leadership;
// Hidden in the docs: flyball-kube sends the lists and watches of its caches in the same way.
#[doc(hidden)]
pub use crate::single_attempt::single_attempt;
pub use crate::status::{LeaderStatus, LeaseOverrun};
