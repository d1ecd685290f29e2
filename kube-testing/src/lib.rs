#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api_server;
mod request;
mod request_matcher;
mod state;
mod status_error;

pub use crate::api_server::ApiServer;
pub use crate::api_server::body::ApiBody;
pub use crate::api_server::registration::Registration;
pub use crate::request::{RecordedRequest, Verb};
pub use crate::request_matcher::RequestMatcher;
