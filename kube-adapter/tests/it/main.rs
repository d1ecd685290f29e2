//! What needs no cluster.

mod api_server;
mod informer;
mod script;
mod source;
mod source_decode;
mod source_error;
mod stream_source;
mod throttle;
