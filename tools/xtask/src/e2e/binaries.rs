//! Builds etcd, kube-apiserver and kube-controller-manager, and caches them outside of the source tree. They are built again only if `go.mod` or
//! `go.sum` changes.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const MODULE: &str = "tools/e2e/kubernetes";
const TOOLS: [&str; 3] = [
    "go.etcd.io/etcd/server/v3",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
];

/// Returns whether the binaries are in the cache.
pub(crate) fn cached(workspace: &Workspace) -> bool {
    place(workspace).is_ok_and(|(_, folder)| folder.exists())
}

/// Returns the folder with the binaries; builds them if it does not exist.
pub(crate) fn ready(workspace: &Workspace) -> Result<PathBuf> {
    let (version, folder) = place(workspace)?;
    let module = workspace.root.join(MODULE);
    if !folder.exists() {
        if let Some(why) = no_go(&module) {
            bail!("{why}");
        }
        build(&module, &version, &cache()?, &folder)?;
    }
    Ok(folder)
}

/// Returns the version of Kubernetes in `go.mod`, and the cache folder of the binaries that are built with this `go.mod` and `go.sum`.
fn place(workspace: &Workspace) -> Result<(String, PathBuf)> {
    let (go_mod, go_sum) =
        (workspace.read(format!("{MODULE}/go.mod"))?, workspace.read(format!("{MODULE}/go.sum"))?);
    let version =
        version(&go_mod).with_context(|| format!("{MODULE}/go.mod requires no k8s.io/kubernetes"))?;
    let digest = digest(&[&go_mod, &go_sum]);
    let folder = format!("kubernetes-{}-{digest:016x}", version.trim_start_matches('v'));
    Ok((version.to_owned(), cache()?.join(folder)))
}

/// Builds the binaries in a temporary folder, and renames the folder at the end. So if `folder` exists, it is complete.
fn build(module: &Path, version: &str, cache: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
    let lock = File::create(cache.join("lock"))?;
    if lock.try_lock().is_err() {
        eprintln!("another build is under way; waiting for it");
        lock.lock()?;
    }
    if folder.exists() {
        return Ok(());
    }
    eprintln!("building Kubernetes {version} into {}: minutes, once", folder.display());
    let partial = cache.join("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir(&partial)?;
    let mut command = Command::new("go");
    // Kubernetes builds its own releases with these flags. Because of them, no C compiler is needed, and the server reports its version.
    command.current_dir(module).env("CGO_ENABLED", "0");
    command.args(["build", "-mod=readonly", "-buildvcs=false", "-ldflags"]);
    command.arg(format!("-s -w -X k8s.io/component-base/version.gitVersion={version}"));
    command.arg("-o").arg(&partial).args(TOOLS);
    process::run(&mut command)?;
    // Go names a binary after the folder of its source, which is `server` for etcd.
    fs::rename(partial.join("server"), partial.join("etcd"))?;
    fs::rename(&partial, folder).with_context(|| folder.display().to_string())
}

/// Returns an error message if Go is missing, or if it is older than the module requires and cannot download the required version.
fn no_go(module: &Path) -> Option<String> {
    let output = Command::new("go").current_dir(module).args(["env", "GOVERSION"]).output();
    let why = match output {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("go: {error}"),
    };
    Some(format!("Go is missing ({why}): install Go 1.26 or newer, see go.dev/dl"))
}

fn cache() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cache")));
    match base {
        Some(base) => Ok(base.join("flyball")),
        None => bail!("neither $XDG_CACHE_HOME nor $HOME is set"),
    }
}

/// Returns the version of Kubernetes, in the form `v1.2.3`.
fn version(go_mod: &str) -> Option<&str> {
    let lines = go_mod.lines().map(|line| line.trim().trim_start_matches("require ").trim());
    let mut found = lines.filter_map(|line| line.strip_prefix("k8s.io/kubernetes "));
    found.next()?.split(' ').next()
}

/// Computes a hash with FNV-1a, which gives the same result with every compiler. The hasher of the standard library does not guarantee this.
fn digest(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_either_form() {
        assert_eq!(version("require (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n"), Some("v1.36.3"));
        assert_eq!(version("require k8s.io/kubernetes v1.36.3\n"), Some("v1.36.3"));
        assert_eq!(version("\tk8s.io/kubernetes/cmd/kube-apiserver\n\tk8s.io/api v0.36.3\n"), None);
    }

    #[test]
    fn the_digest_sees_where_a_text_ends() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        // The expected value is a literal, because a change of the hash function would cause all binaries to be built again.
        assert_eq!(digest(&["a"]), 0x089b_e207_b544_f1e4);
    }
}
