#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api_server;
mod request;
mod request_matcher;
mod state;

pub use crate::api_server::{ApiBody, ApiServer, Registration};
pub use crate::request::RecordedRequest;
pub use crate::request_matcher::{RequestMatcher, Verb};
