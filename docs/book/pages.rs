//! The documentation tests of this crate: `cargo test` compiles every Rust example of the book and of the root README, and runs all except those that
//! need a cluster (`no_run`). `build.rs` writes one module per page; `tests/it/programs.rs` runs the programs that pages include.

include!(concat!(env!("OUT_DIR"), "/pages.rs"));
