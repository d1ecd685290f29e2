//! Drivers of the informer cache: its store, its reflector, and whole informers on virtual time.

pub mod fixture;
pub mod observers;
pub mod reflector;
pub mod relist;
pub mod selector;
pub mod server;
pub mod simulation;
pub mod store;
pub mod ttl;
