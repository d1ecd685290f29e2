//! What tests hold: a cluster without nodes.

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

/// etcd and kube-apiserver, and kube-controller-manager where it was started, on loopback and in a folder of their own.
///
/// Without a controller manager nothing happens by itself: nothing is collected, no namespace is ever gone, and there are no
/// service accounts. There is no kubelet in any case; who runs pods is the test.
///
/// The servers are killed when this is dropped, and when the process ends, however it ends. Dropped, it takes its data with it and
/// leaves its logs.
#[derive(Debug)]
pub struct Cluster {
    // In the order in which they end: nobody misses who is gone already.
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
    /// Starts etcd and the API server, and returns when it is ready, which takes seconds.
    ///
    /// # Errors
    ///
    /// Where the test was given no binaries, or a server does not start; then with the last lines it wrote.
    pub fn start() -> Result<Self> {
        let Given::Binaries { binaries, folder } = Given::here()? else {
            bail!("a test on somebody's cluster has no servers of its own");
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

    /// Of the API server, always the same.
    pub fn url(&self) -> String {
        self.api_server.url()
    }

    /// The bearer token of `admin`, who may do anything.
    pub fn token(&self) -> &str {
        &self.credentials.admin
    }

    /// The bearer token of `nobody`, who may do next to nothing: what they ask for is answered by 403.
    pub fn token_of_nobody(&self) -> &str {
        &self.credentials.nobody
    }

    /// Whom to trust: a file in PEM.
    pub fn authority(&self) -> &Path {
        &self.certificate
    }

    /// A kubeconfig with the contexts `admin`, which is the current one, and `nobody`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where data and logs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// One request to the API server as `admin`, with a body in JSON. Of a watch it returns when the watch has ended, so ask with
    /// `timeoutSeconds`.
    ///
    /// # Errors
    ///
    /// Where there is no answer; any status is one.
    pub fn request(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        self.api_server.ask(method, path, body).with_context(|| format!("{method} {path}"))
    }

    /// `kill -9` for the API server. Connections break, what it has acknowledged stays, and nobody listens until it is started
    /// again.
    ///
    /// # Errors
    ///
    /// Where waiting for its end fails.
    pub fn kill_api_server(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server at its old URL with its old certificate and tokens, and returns when it is ready. One that still
    /// runs is killed.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn restart_api_server(&mut self) -> Result<()> {
        self.api_server.start()
    }

    /// Makes everything that happened so far unknowable: every watch from a version, and every list to be continued, that a client
    /// knows from before this call is answered by 410, as both etcd and the server's own cache have forgotten.
    ///
    /// A restart of the API server is part of it. While it is down the revision of the store grows, so that even a client who
    /// has seen the very last event is behind.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`], or where etcd refuses.
    pub fn expire_history(&mut self) -> Result<()> {
        self.api_server.kill()?;
        self.etcd.forget()?;
        self.api_server.start()
    }

    /// Another address of the API server, whose connections can be cut.
    ///
    /// # Errors
    ///
    /// Where the system gives no port.
    pub fn front(&self) -> Result<Front> {
        Front::open(self.api_server.port(), &self.folder, &self.credentials, &self.certificate)
    }

    /// Starts kube-controller-manager with these of its controllers, and returns when it is healthy. One that runs is stopped
    /// before.
    ///
    /// # Errors
    ///
    /// Where it does not start, for instance as it does not know a controller; then with the last lines it wrote.
    pub fn start_controller_manager(&mut self, controllers: &[&str]) -> Result<()> {
        self.stop_controller_manager()?;
        let program = self.binaries.join("kube-controller-manager");
        let started = controller_manager::start(&program, &self.folder, &self.kubeconfig, controllers);
        self.controller_manager = Some(started?);
        Ok(())
    }

    /// Kills kube-controller-manager, if it runs.
    ///
    /// # Errors
    ///
    /// Where waiting for its end fails.
    pub fn stop_controller_manager(&mut self) -> Result<()> {
        self.controller_manager.take().map_or(Ok(()), Leash::kill)
    }
}

/// A new folder that only this user can look into: there are keys and tokens in it.
fn own_folder(parent: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Ordering: Relaxed, each caller needs another number and nothing else.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("cluster-{}-{number}", process::id()));
    let created = DirBuilder::new().mode(0o700).create(&folder);
    created.with_context(|| folder.display().to_string())?;
    Ok(folder)
}
