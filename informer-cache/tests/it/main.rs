//! One binary: modules by subject.

mod corpus;
mod hostile;
mod informer;
mod observer;
mod oracle;
mod pending;
mod reflector;
mod reflector_driver;
mod regressions;
mod relist_driver;
mod server;
mod store_driver;
mod subscription;
mod surface;
mod upstream_informer;
mod upstream_store;
mod world;
