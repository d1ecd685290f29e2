//! The models of flyball-informer-cache.

mod handler;
mod indexing;
mod informer;
mod informer_set;
mod observer;
mod reader_slots;
mod store;
mod ttl;
mod waits;
mod writes;
