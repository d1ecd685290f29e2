//! The API server in memory that the tests use. Its keys are small numbers; an object contains its key and the version of its last write.
//!
//! The fuzz target `relist` also uses this server.

use flyball_informer_cache::testing;

use crate::cache::fixture::{Object, SCHEMA};

/// An API server in memory.
pub type Server = testing::TestServer<u8, Object>;

/// Creates an empty server.
pub fn server() -> Server {
    Server::new(SCHEMA, |object, uid, version| (object.uid, object.version) = (uid, version.get()))
}
