//! Reimplementations of published programs for kube-runtime. Each program is compiled for both engines: kube-runtime and flyball. Except in
//! `readers`, both modules of a program are compiled from the same text, and differ only in their imports. `tests/e2e` runs both modules and compares
//! the remaining objects; a table in the README lists the programs.

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
