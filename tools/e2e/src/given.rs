//! Reads the environment variables that `cargo xtask e2e` sets for a test: the cluster that the test must use, or the binaries of the servers.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Result, bail};

use crate::cluster::Cluster;

/// The variable with the path of the folder with the binaries, which `cargo xtask e2e` builds.
const BINARIES: &str = "FLYBALL_E2E_BIN";
/// The variable with the path of the kubeconfig of an existing cluster.
const EXISTING: &str = "FLYBALL_E2E_KUBECONFIG";
/// The variable with the path of the folder in which each cluster creates a folder of its own. The tests do not remove this folder, because the logs
/// in it are read after a test; the program that sets the variable removes it, or keeps it for the logs.
const FOLDER: &str = "FLYBALL_E2E_DIR";

/// The cluster or the servers that tests use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Servers that the tests start.
    Binaries {
        /// The folder with `etcd`, `kube-apiserver` and `kube-controller-manager`.
        binaries: PathBuf,
        /// The folder for data and logs.
        folder: PathBuf,
    },
    /// An existing cluster, given by its kubeconfig. Tests use the current context of the kubeconfig, and only namespaces that they create. Tests
    /// that kill servers are skipped.
    Existing(PathBuf),
}

impl Given {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the variables are not set. They are set only if `cargo xtask e2e` has started the test.
    pub fn here() -> Result<Self> {
        let [existing, binaries, folder] = [EXISTING, BINARIES, FOLDER].map(env::var_os);
        match (existing, binaries, folder) {
            (Some(path), _, _) => Ok(Self::Existing(path.into())),
            (None, Some(binaries), Some(folder)) => {
                Ok(Self::Binaries { binaries: binaries.into(), folder: folder.into() })
            }
            (None, _, _) => bail!("this test needs an API server: run it by `cargo xtask e2e`"),
        }
    }
}

/// Returns the path of the kubeconfig of the cluster that all tests of this program share. This cluster either already exists, or is started by the
/// first call and killed when the program ends.
///
/// # Panics
///
/// Panics with the reason if there is no cluster, because the test cannot continue.
pub fn shared_kubeconfig() -> &'static Path {
    static SHARED: OnceLock<Result<Shared, String>> = OnceLock::new();
    enum Shared {
        Own(Box<Cluster>),
        Existing(PathBuf),
    }
    let start = || match Given::here()? {
        Given::Existing(path) => Ok(Shared::Existing(path)),
        Given::Binaries { .. } => Cluster::start().map(|cluster| Shared::Own(Box::new(cluster))),
    };
    match SHARED.get_or_init(|| start().map_err(|error| format!("{error:#}"))) {
        Ok(Shared::Own(cluster)) => cluster.kubeconfig(),
        Ok(Shared::Existing(path)) => path,
        Err(error) => panic!("{error}"),
    }
}
