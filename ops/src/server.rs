//! EDGE. The HTTP endpoints of a process that runs controllers: see [`OpsServer`].
//!
//! Cancel safety: see [`OpsServer::serve`].

mod checks;
mod connections;
mod debug_view;
mod endpoints;
mod gauges;
#[cfg(feature = "kube")]
mod kube;
#[cfg(feature = "kube")]
mod kube_gauges;
mod ops_server;
mod response;
mod serve;

pub use self::ops_server::OpsServer;
