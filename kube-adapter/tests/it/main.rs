//! What needs no cluster.

mod api_server;
mod script;
mod source;
mod source_error;
mod throttle;
