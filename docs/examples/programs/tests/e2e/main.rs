//! The same program on both engines: both leave the same behind. In memory, which `cargo test` runs, and on a real API server, which `cargo xtask e2e` does;
//! one binary for both, so that they share their scenarios.

#![forbid(unsafe_code)]

/// Passes the scenarios to a macro that makes a test of each, by their module.
macro_rules! each_scenario {
    ($tests:ident) => {
        $tests! {
            scenarios:
            accounts
            config_map_generator
            documents
            environments
            restarter
            secret_syncer
            shared_streams
            truststores
        }
        $tests! {
            reader_scenarios:
            dynamic
            events
            multi
            nodes
            versions
        }
    };
}

mod alone;
mod cluster;
mod cost;
mod forbidden;
mod life;
mod memory;
mod processes;
mod proxy;
mod reader_scenarios;
mod real;
mod scenarios;
mod table;
