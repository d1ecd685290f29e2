//! A cluster without nodes, for tests.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::api_server::ApiServer;
use crate::controller_manager;
use crate::credentials::Credentials;
use crate::etcd::Etcd;
use crate::front::Front;
use crate::given::Given;
use crate::http::Reply;
use crate::leash::Leash;

/// etcd, kube-apiserver and, if it was started, kube-controller-manager, on loopback and in their own folder.
///
/// Without a controller manager there is no garbage collection, no namespace is ever removed, and there are no service
/// accounts. There is no kubelet: a test sets the status of pods.
///
/// The servers are killed when the `Cluster` is dropped, and when the process ends in any way. Dropping the `Cluster` deletes its data and keeps its logs.
#[derive(Debug)]
pub struct Cluster {
    // The fields are in the order in which the servers are killed: a server is killed before the servers on which it depends.
    controller_manager: Option<Leash>,
    api_server: ApiServer,
    etcd: Etcd,
    credentials: Credentials,
    binaries: PathBuf,
    folder: PathBuf,
    kubeconfig: PathBuf,
    certificate: PathBuf,
}

impl Cluster {
    /// Starts etcd and the API server, and returns when the API server is ready, which takes seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if the test was given no binaries, or if a server does not start. The error then contains the server's last lines of output.
    pub fn start() -> Result<Self> {
        let Given::Binaries { binaries, folder } = Given::here()? else {
            bail!("a test on an existing cluster cannot start servers");
        };
        let folder = own_folder(&folder)?;
        let credentials = Credentials::create(&folder)?;
        let etcd = Etcd::start(&binaries.join("etcd"), &folder)?;
        let program = binaries.join("kube-apiserver");
        let mut api_server = ApiServer::new(program, &folder, &etcd.url(), &credentials)?;
        api_server.start()?;
        let certificate = api_server.certificate();
        let kubeconfig = folder.join("kubeconfig");
        fs::write(&kubeconfig, credentials.kubeconfig(&api_server.url(), &certificate))?;
        let controller_manager = None;
        Ok(Self {
            controller_manager,
            api_server,
            etcd,
            credentials,
            binaries,
            folder,
            kubeconfig,
            certificate,
        })
    }

    /// The URL of the API server, which never changes.
    pub fn url(&self) -> String {
        self.api_server.url()
    }

    /// The bearer token of `admin`, a user with all permissions.
    pub fn token(&self) -> &str {
        &self.credentials.admin
    }

    /// The bearer token of `nobody`, a user with almost no permissions: requests are answered with 403.
    pub fn token_of_nobody(&self) -> &str {
        &self.credentials.nobody
    }

    /// The CA certificates, as a PEM file.
    pub fn authority(&self) -> &Path {
        &self.certificate
    }

    /// A kubeconfig with the contexts `admin`, which is the current one, and `nobody`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The folder of data and logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a request with a JSON body to the API server as `admin`. A watch returns when it has ended, so set
    /// `timeoutSeconds`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no response. Any status is a response.
    pub fn request(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        self.api_server.ask(method, path, body).with_context(|| format!("{method} {path}"))
    }

    /// Kills the API server as `kill -9` does. Connections break, acknowledged writes are kept, and the port is closed
    /// until the server is started again.
    ///
    /// # Errors
    ///
    /// Returns an error if waiting for the end of the process fails.
    pub fn kill_api_server(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server with the same URL, certificate and tokens, and returns when it is ready. A running API server is killed first.
    ///
    /// # Errors
    ///
    /// Like [`Cluster::start`].
    pub fn restart_api_server(&mut self) -> Result<()> {
        self.api_server.start()
    }

    /// Compacts the complete history. Every watch from an earlier version and every continuation of an earlier list is answered with 410, because
    /// etcd and the server's cache no longer have the history.
    ///
    /// This restarts the API server. While the server is down, the revision of the store grows, so that even a client
    /// that has received the last event is behind.
    ///
    /// # Errors
    ///
    /// Returns an error like [`Cluster::start`], or if etcd refuses.
    pub fn expire_history(&mut self) -> Result<()> {
        self.api_server.kill()?;
        self.etcd.forget()?;
        self.api_server.start()
    }

    /// Opens a second address of the API server, whose connections can be cut.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no port.
    pub fn front(&self) -> Result<Front> {
        Front::open(self.api_server.port(), &self.folder, &self.credentials, &self.certificate)
    }

    /// Starts kube-controller-manager with these controllers, and returns when it is healthy. A running kube-controller-manager is stopped first.
    ///
    /// # Errors
    ///
    /// Returns an error with the last lines of output if the program does not start, for example because a controller is unknown.
    pub fn start_controller_manager(&mut self, controllers: &[&str]) -> Result<()> {
        self.stop_controller_manager()?;
        let program = self.binaries.join("kube-controller-manager");
        let started = controller_manager::start(&program, &self.folder, &self.kubeconfig, controllers);
        self.controller_manager = Some(started?);
        Ok(())
    }

    /// Kills kube-controller-manager if it is running.
    ///
    /// # Errors
    ///
    /// Returns an error if waiting for the end of the process fails.
    pub fn stop_controller_manager(&mut self) -> Result<()> {
        self.controller_manager.take().map_or(Ok(()), Leash::kill)
    }
}

/// Creates a folder that only this user can read, because it contains keys and tokens.
fn own_folder(parent: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Ordering: Relaxed; each caller needs a unique number and no other memory.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("cluster-{}-{number}", process::id()));
    let created = DirBuilder::new().mode(0o700).create(&folder);
    created.with_context(|| folder.display().to_string())?;
    Ok(folder)
}
