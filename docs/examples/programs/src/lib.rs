//! Published kube-runtime programs, reimplemented. Each program compiles for both engines. If one source suffices, the two
//! modules of a program differ only in their imports. `tests/e2e` runs both modules and compares the remaining objects; the README
//! has a table.

#[macro_use]
mod both;

pub mod accounts;
pub mod config_map_generator;
pub mod documents;
pub mod environments;
pub mod readers;
pub mod restarter;
pub mod secret_syncer;
pub mod shared_streams;
pub mod truststores;
