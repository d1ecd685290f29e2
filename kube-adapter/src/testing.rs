//! EDGE. An API server in memory, for tests of controllers: no cluster, no network, no sleep.
//!
//! [`ApiServer`] speaks the HTTP of a real one to `kube`'s own client, and can be told to fail as real ones do. Whatever talks to it
//! through a [`kube::Client`] is tested with the code that ships: paging, streams, conflicts, finalizers, histories that are forgotten.

mod answer;
mod body;
mod call;
mod client;
mod dependents;
mod faults;
mod history;
mod kind;
mod meta;
mod orders;
mod problem;
mod read;
mod request;
mod selection;
mod server;
mod state;
mod watch;
mod watches;
mod write;

pub use self::body::ApiBody;
pub use self::call::{Call, Verb};
pub use self::request::Request;
pub use self::server::ApiServer;
