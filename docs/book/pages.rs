//! Every Rust example of the book and of the root README is compiled here by `cargo test`, and run, but for those that need a cluster
//! (`no_run`). `build.rs` makes a module of each page; `tests/programs.rs` runs the programs that pages include.

include!(concat!(env!("OUT_DIR"), "/pages.rs"));
