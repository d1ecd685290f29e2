//! One JSON line per completed model, for `cargo xtask loom`.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

use crate::Model;
use crate::engine::Explored;

/// Appends a line to the file that the environment variable `FLYBALL_MODEL_REPORT` names, if it is set.
pub(crate) fn append(model: &Model, explored: &Explored) {
    let Some(path) = env::var_os("FLYBALL_MODEL_REPORT") else { return };
    let row = serde_json::json!({
        "name": model.name,
        "threads": model.threads,
        "preemptions": explored.preemptions,
        "interleavings": explored.interleavings,
        "floor": model.floor,
        "seconds": explored.seconds,
        "catches": model.catches,
        "capped": !explored.complete,
    });
    // One write per line, because several test binaries may append to the file.
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the report can be opened");
    file.write_all(format!("{row}\n").as_bytes()).expect("the report can be written");
}
