//! kube-apiserver with settings for tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::credentials::Credentials;
use crate::http::{self, Reply, Server};
use crate::leash::Leash;
use crate::ports;

/// The time limit of a cold start on a busy machine. A start usually takes seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// The process of kube-apiserver, with its address and arguments. The address and the arguments never change, so a restarted server has the same
/// address and the same certificate.
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

    /// The file with the certificate that the server has generated, followed by the certificate of its signer. The file exists after the first start.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("certificates").join("apiserver.crt")
    }

    /// Starts the server, and returns when it is ready.
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

    /// Sends a signal to the running server, by its name without `SIG`.
    pub(crate) fn signal(&mut self, name: &str) -> Result<()> {
        self.process.as_mut().context("the API server does not run")?.signal(name)
    }

    /// Sends a request as `admin`.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        self.address()?.ask(method, path, body)
    }

    /// Returns the address of the server, and the credentials of `admin`. Returns an error if the server has no certificate yet.
    fn address(&self) -> Result<Server> {
        let tls = http::trust(&self.certificate())?;
        Ok(Server { port: self.port, tls: Some(tls), token: Some(self.token.clone()) })
    }
}

/// Paths of requests that all succeed when the server is ready. `/readyz` succeeds when the server's start hooks have run, for example the hook that
/// creates the roles of RBAC. After that, the server creates the namespaces that every cluster has.
const READY: [&str; 3] = ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"];

const FLAGS: [&str; 13] = [
    "--bind-address=127.0.0.1",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--authorization-mode=RBAC",
    "--allow-privileged=true",
    "--service-cluster-ip-range=10.0.0.0/24",
    // There are no nodes and no pods that could use this server, so its address does not have to be published as endpoints in `default`.
    "--endpoint-reconciler-type=none",
    // This admission plugin would reject all pods until a controller has created a service account in their namespace.
    "--disable-admission-plugins=ServiceAccount",
    // The history is compacted only when a test does it.
    "--etcd-compaction-interval=0",
    // The tests send bursts of writes, and test the client, not the fair queues of the server.
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=10000",
    "--max-mutating-requests-inflight=10000",
    "--event-ttl=5m",
    "--profiling=false",
];
