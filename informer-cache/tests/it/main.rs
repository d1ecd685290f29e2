//! One binary: modules by subject.

mod corpus;
mod informer;
mod oracle;
mod pending;
mod reflector;
mod reflector_driver;
mod relist_driver;
mod server;
mod store_driver;
mod upstream_informer;
mod world;
