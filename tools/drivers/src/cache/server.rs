//! The server of the tests: keys are small numbers, and an object contains its key and the version of its write.
//!
//! Shared with the fuzz target `relist`.

use flyball_informer_cache::testing;

use crate::cache::fixture::{Object, SCHEMA};

/// An API server in memory.
pub type Server = testing::TestServer<u8, Object>;

/// Creates an empty server.
pub fn server() -> Server {
    Server::new(SCHEMA, |object, uid, version| (object.uid, object.version) = (uid, version.get()))
}
