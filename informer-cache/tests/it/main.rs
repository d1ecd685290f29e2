//! One binary: modules by subject.

mod corpus;
mod defects;
mod hostile;
mod hostile_store;
mod informer;
mod observer;
mod oracle;
mod pending;
mod reflector;
mod reflector_driver;
mod regressions;
mod relist_driver;
mod selector;
mod selector_driver;
mod server;
mod store_driver;
mod subscription;
mod surface;
mod testing_server;
mod ttl;
mod ttl_driver;
mod ttl_hostile;
mod upstream_informer;
mod upstream_store;
mod upstream_ttl;
mod world;
