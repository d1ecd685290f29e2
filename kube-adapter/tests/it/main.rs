//! What needs no cluster.

mod api_server;
mod throttle;
