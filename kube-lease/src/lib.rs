#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod candidate;
mod driver;
mod election;
mod leadership;
mod lease_api;
mod lease_request;
mod record;
mod status;
mod timing;

pub use crate::builder::{ElectionBuilder, unique_identity};
pub use crate::candidate::Candidate;
pub use crate::election::{Election, Ended};
pub use crate::leadership::Leadership;
pub use crate::lease_request::{Answer, Ask, Lost, Step};
pub use crate::record::Record;
pub use crate::status::{Overstays, Standing};
pub use crate::timing::{InvalidElection, Timing};
