//! Programs as people publish them for kube-runtime, written again from what they do. Each is compiled for both engines from one text: what differs between
//! the two modules of a program is its imports, and nothing else. `tests/it` runs both and compares what they leave behind; the table is in the
//! [book](https://docs.rs/flyball-kube).

#[macro_use]
mod both;

pub mod config_map_generator;
pub mod documents;
pub mod secret_syncer;
