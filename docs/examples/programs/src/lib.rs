//! Programs as people publish them for kube-runtime, written again from what they do. Each is compiled for both engines; where one text is enough, what differs
//! between the two modules of a program is its imports, and nothing else. `tests/e2e` runs both and compares what they leave behind; the README has the table.

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
