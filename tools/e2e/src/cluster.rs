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

/// etcd, kube-apiserver and, if a test has started it, kube-controller-manager. They run on the loopback interface, with a folder of their own.
///
/// While no controller manager runs, there is no garbage collection, deleted namespaces are not removed, and service accounts are not created. There
/// is no kubelet: a test sets the status of pods.
///
/// The servers are killed when the `Cluster` is dropped, and when the process that started them ends, however it ends. If the `Cluster` is dropped,
/// its data is deleted, and its logs are kept.
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
    /// Starts etcd and the API server, and returns when the API server is ready. This takes some seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if the test runs on an existing cluster or without the binaries, or if a server does not start. In the last case, the error
    /// contains the last lines of the server's output.
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
    pub fn token_without_permissions(&self) -> &str {
        &self.credentials.nobody
    }

    /// The PEM file with the certificate of the API server and the certificate of its signer. A client has to trust it.
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

    /// Sends a request with a JSON body to the API server as `admin`. A watch request returns only when the watch has ended, so set its
    /// `timeoutSeconds`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no response. Any status is a response.
    pub fn request(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        self.api_server.ask(method, path, body).with_context(|| format!("{method} {path}"))
    }

    /// Kills the API server as `kill -9` does. This breaks its connections. Acknowledged writes are kept. The port is closed until the server is
    /// started again.
    ///
    /// # Errors
    ///
    /// Returns an error if the wait for the end of the process fails.
    pub fn kill_api_server(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server with the same URL, certificate and tokens, and returns when it is ready. A running API server is killed first.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Cluster::start`].
    pub fn restart_api_server(&mut self) -> Result<()> {
        self.api_server.start()
    }

    /// Sends SIGSTOP to the API server: it accepts connections, but answers nothing until [`resume_api_server`](Self::resume_api_server).
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not run.
    pub fn suspend_api_server(&mut self) -> Result<()> {
        self.api_server.signal("STOP")
    }

    /// Lets a suspended API server continue.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not run.
    pub fn resume_api_server(&mut self) -> Result<()> {
        self.api_server.signal("CONT")
    }

    /// Copies all data, for [`restore`](Self::restore). This restarts etcd and the API server.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Cluster::start`], and if the files cannot be copied.
    pub fn back_up(&mut self) -> Result<Backup> {
        let backup = Backup(self.folder.join("backup"));
        self.api_server.kill()?;
        self.etcd.while_stopped(|data| copy_folder(data, &backup.0))?;
        self.api_server.start()?;
        Ok(backup)
    }

    /// Replaces all data by the data of a backup, so later writes are lost, and the versions of the server are lower than before. This restarts etcd and
    /// the API server.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Cluster::start`], and if the files cannot be copied.
    pub fn restore(&mut self, backup: &Backup) -> Result<()> {
        self.api_server.kill()?;
        self.etcd.while_stopped(|data| {
            fs::remove_dir_all(data)?;
            copy_folder(&backup.0, data)
        })?;
        self.api_server.start()
    }

    /// Compacts the complete history. After this call, every watch from an earlier version and every continuation of an earlier list is answered with
    /// 410, because neither etcd nor the server's cache has the history.
    ///
    /// This restarts the API server. While the server is down, the revision of etcd is increased, so that even the version of a client that has
    /// received the last event is too old.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Cluster::start`], and if etcd refuses the compaction.
    pub fn expire_history(&mut self) -> Result<()> {
        self.api_server.kill()?;
        self.etcd.forget()?;
        self.api_server.start()
    }

    /// Opens a second address of the API server. A test can cut the connections to this address.
    ///
    /// # Errors
    ///
    /// Returns an error if no port is available.
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

/// A copy of the data of a [`Cluster`], which is deleted on drop.
#[derive(Debug)]
pub struct Backup(PathBuf);

impl Drop for Backup {
    fn drop(&mut self) {
        // An error is ignored, because the parent folder is removed later.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a folder with all folders in it. The destination must not exist.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

/// Creates a folder that only this user can read, because it contains keys and tokens.
fn own_folder(parent: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Ordering: Relaxed; each caller only needs a unique number, and reads no other memory.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("cluster-{}-{number}", process::id()));
    let created = DirBuilder::new().mode(0o700).create(&folder);
    created.with_context(|| folder.display().to_string())?;
    Ok(folder)
}
