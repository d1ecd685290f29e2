//! kube-apiserver, with what tests need of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::credentials::Credentials;
use crate::http::{self, Reply, Server};
use crate::leash::Leash;
use crate::ports;

/// A cold start on a busy machine; usually it takes seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// Where it is and how it is started, every time the same: a restarted server is at its old place, with its old certificate.
#[derive(Debug)]
pub(crate) struct ApiServer {
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    port: u16,
    token: String,
    process: Option<Leash>,
}

impl ApiServer {
    pub(crate) fn new(
        program: PathBuf,
        folder: &Path,
        etcd: &str,
        credentials: &Credentials,
    ) -> Result<Self> {
        let port = ports::free()?;
        let mut arguments = vec![
            format!("--secure-port={port}"),
            format!("--cert-dir={}", folder.join("certificates").display()),
            format!("--etcd-servers={etcd}"),
            format!("--token-auth-file={}", credentials.tokens.display()),
            format!("--service-account-key-file={}", credentials.public_key.display()),
            format!("--service-account-signing-key-file={}", credentials.signing_key.display()),
        ];
        arguments.extend(FLAGS.map(str::to_owned));
        let token = credentials.admin.clone();
        Ok(Self { program, folder: folder.to_owned(), arguments, port, token, process: None })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate it made for itself, followed by that of its signer. It is there once the server has been ready.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("certificates").join("apiserver.crt")
    }

    /// Starts it, and returns when it is ready.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.kill()?;
        let process = Leash::start(&self.program, &self.arguments, self.folder.join("kube-apiserver.log"))?;
        let is_there = |path| self.address().is_ok_and(|server| server.has(path));
        let process = process.ready("kube-apiserver", LIMIT, || READY.into_iter().all(is_there))?;
        self.process = Some(process);
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), Leash::kill)
    }

    /// Asks as `admin`.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        self.address()?.ask(method, path, body)
    }

    /// Where to ask as `admin`, once there is a certificate.
    fn address(&self) -> Result<Server> {
        let tls = http::trust(&self.certificate())?;
        Ok(Server { port: self.port, tls: Some(tls), token: Some(self.token.clone()) })
    }
}

/// When it is ready: it says so once its hooks are done, such as the roles of RBAC; the namespaces that every cluster has it makes
/// in its own time.
const READY: [&str; 3] = ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"];

const FLAGS: [&str; 13] = [
    "--bind-address=127.0.0.1",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--authorization-mode=RBAC",
    "--allow-privileged=true",
    "--service-cluster-ip-range=10.0.0.0/24",
    // No node and no pod reaches this server, so there is nothing to publish in `default`.
    "--endpoint-reconciler-type=none",
    // It refuses pods until a controller has made a service account in their namespace.
    "--disable-admission-plugins=ServiceAccount",
    // History is forgotten when a test says so, not meanwhile.
    "--etcd-compaction-interval=0",
    // Tests write in bursts and measure the client, not how fairly the server queues.
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=10000",
    "--max-mutating-requests-inflight=10000",
    "--event-ttl=5m",
    "--profiling=false",
];
