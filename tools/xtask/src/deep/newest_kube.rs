//! Tests flyball-kube with the newest version of kube that the manifests allow. The `Action` of kube has no getter for its delay, so flyball-kube
//! parses the delay from the `Debug` output of the `Action`. A new version of kube could change this output.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::workspace::{Workspace, cargo};

/// The manifest of a package without a lock file, so that cargo selects the newest releases. `.cargo/config.toml` of the repository selects the version
/// of Kubernetes, because the package is in the target directory.
const MANIFEST: &str = r#"
[package]
name = "newest-kube"
version = "0.0.0"
edition = "2024"

[dependencies]
flyball-kube = { path = "../../kube-adapter" }
kube = { version = "5", default-features = false, features = ["client", "runtime"] }

[workspace]
"#;

const TEST: &str = r#"
use std::time::Duration;

use flyball_kube::action_delay;
use kube::runtime::controller::Action;

#[test]
fn every_delay_is_read_exactly() {
    assert_eq!(action_delay(&Action::await_change()), Ok(None));
    let mut bits = 1_u64;
    for round in 0..100_000_u32 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = Duration::new(bits >> (round % 64), (bits >> 32) as u32 % 1_000_000_000 >> (round % 30));
        assert_eq!(action_delay(&Action::requeue(delay)), Ok(Some(delay)));
    }
}
"#;

/// Writes the package, and returns the command that tests it.
pub(super) fn command(workspace: &Workspace) -> Result<Command> {
    let folder = workspace.root.join("target/newest-kube");
    fs::create_dir_all(folder.join("tests"))?;
    fs::write(folder.join("Cargo.toml"), MANIFEST)?;
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    fs::write(folder.join("tests/action.rs"), TEST)?;
    if folder.join("Cargo.lock").exists() {
        fs::remove_file(folder.join("Cargo.lock"))?;
    }
    let mut command = cargo();
    command.current_dir(folder).arg("test").env("CARGO_TARGET_DIR", workspace.target.join("newest-kube"));
    Ok(command)
}
