//! Sixteen defects of kube-runtime 5.0.0 that flyball must not have. Each has one program, which runs against kube-runtime and against flyball.
//!
//! `cargo run --release --manifest-path benches/peers/rust/Cargo.toml --bin defects --features paused [D1 D4 …]` prints
//! a Markdown table. The program fails if kube-runtime does not show a defect, or if flyball shows one. Both use kube's own
//! client and the same in-memory API server, on tokio's paused clock, so seconds are virtual. The exception is D12, which
//! measures CPU time.

#![allow(clippy::disallowed_methods, reason = "CPU time is measured on the machine's clock")]

mod cache;
mod counted;
mod d01_starvation;
mod d02_relist_loses;
mod d03_vanished;
mod d04_subscriber_hangs;
mod d05_idle_subscriber;
mod d06_ready;
mod d07_joint_backoff;
mod d08_panic;
mod d09_timer;
mod d10_order;
mod d11_debounce;
mod d12_in_flight;
mod d13_relist_blocks;
mod d14_copies;
mod d15_no_index;
mod d16_keys;
mod engine;
mod report;
mod world;

use std::process::ExitCode;

use crate::report::Defect;

const DEFECTS: [Defect; 16] = [
    d01_starvation::DEFECT,
    d02_relist_loses::DEFECT,
    d03_vanished::DEFECT,
    d04_subscriber_hangs::DEFECT,
    d05_idle_subscriber::DEFECT,
    d06_ready::DEFECT,
    d07_joint_backoff::DEFECT,
    d08_panic::DEFECT,
    d09_timer::DEFECT,
    d10_order::DEFECT,
    d11_debounce::DEFECT,
    d12_in_flight::DEFECT,
    d13_relist_blocks::DEFECT,
    d14_copies::DEFECT,
    d15_no_index::DEFECT,
    d16_keys::DEFECT,
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).map(|name| name.to_uppercase()).collect();
    if let Some(unknown) = asked.iter().find(|name| DEFECTS.iter().all(|defect| defect.id != **name)) {
        eprintln!("{unknown} is not one of D1 to D16");
        return ExitCode::FAILURE;
    }
    let wanted =
        DEFECTS.iter().filter(|defect| asked.is_empty() || asked.iter().any(|name| name == defect.id));
    report::head();
    // All programs run, even after one had an unexpected result.
    let as_expected = wanted.map(Defect::show).fold(true, |all, this| all && this);
    if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
