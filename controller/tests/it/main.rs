//! Tests of the controller through its public API, on virtual time.

mod attempts;
mod batches;
mod cancel;
mod classes;
mod combinations;
mod config;
mod defects;
mod events;
mod finally;
mod health;
mod isolation;
mod metrics;
mod once;
mod predicates;
mod priority;
mod resync;
mod scaling;
mod settings;
mod shards;
mod shutdown;
mod simulation;
mod support;
mod synced;
mod testing;
mod traced;
mod watches;
