//! What a test was given to run against, by `cargo xtask e2e` through the environment.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Result, bail};

use crate::cluster::Cluster;

/// Where the binaries are, made by `cargo xtask e2e`.
const BINARIES: &str = "FLYBALL_E2E_BIN";
/// The kubeconfig of a cluster that is there already.
const EXISTING: &str = "FLYBALL_E2E_KUBECONFIG";
/// Where clusters have their folders. Who sets it removes it: logs are for the time after a test.
const FOLDER: &str = "FLYBALL_E2E_DIR";

/// What tests run against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Servers of their own.
    Binaries {
        /// With `kube-apiserver` and `kube-controller-manager`.
        binaries: PathBuf,
        /// For data and logs.
        folder: PathBuf,
    },
    /// Somebody's cluster, by its kubeconfig: tests use its current context and keep to namespaces they made, and those that
    /// kill servers are left out.
    Existing(PathBuf),
}

impl Given {
    /// What the environment says.
    ///
    /// # Errors
    ///
    /// Where it says nothing: the test was not started by `cargo xtask e2e`.
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

/// The kubeconfig of the cluster that the tests of this program share: somebody's, or one of its own, which the first call
/// starts and the end of the program ends.
///
/// # Panics
///
/// Where there is none, with the reason: a test cannot go on.
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
