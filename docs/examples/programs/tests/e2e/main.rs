//! Runs each program on both engines, and checks that the same objects exist at the end. `cargo test` runs the scenarios in memory, and `cargo xtask
//! e2e` on a real API server. Both kinds of tests are in one binary, so that they share the scenarios.

#![forbid(unsafe_code)]

/// Passes the names of the scenarios, grouped by module, to the macro `$tests`, which generates a test for each scenario.
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
