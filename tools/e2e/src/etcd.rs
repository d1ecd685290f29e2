//! etcd, the storage of the API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::Server;
use crate::leash::Leash;
use crate::ports;

const LIMIT: Duration = Duration::from_secs(30);

/// The process of etcd, with its address and arguments, which never change.
#[derive(Debug)]
pub(crate) struct Etcd {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    server: Server,
    // The process must be dropped before the data, so the fields must stay in this order.
    process: Option<Leash>,
    data: Data,
}

/// etcd's data files. They are large even if the store is empty, so they are deleted when the cluster is dropped. etcd's logs are kept.
#[derive(Debug)]
struct Data(PathBuf);

impl Drop for Data {
    fn drop(&mut self) {
        // An error is ignored, because the parent folder is removed later.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Etcd {
    /// Starts etcd with an empty folder for its data, and returns when etcd is healthy.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let (clients, peers) = (ports::free()?, ports::free()?);
        let (client_url, peer_url) = (url(clients), url(peers));
        let data = folder.join("etcd");
        let arguments = [
            "--name=e2e".to_owned(),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=e2e={peer_url}"),
            // fsync is not needed, because the data does not have to survive a crash of the machine.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let mut etcd = Self {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            log: folder.join("etcd.log"),
            server: Server { port: clients, tls: None, token: None },
            process: None,
            data: Data(data),
        };
        etcd.run()?;
        Ok(etcd)
    }

    fn run(&mut self) -> Result<()> {
        let process = Leash::start(&self.program, &self.arguments, self.log.clone())?;
        self.process = Some(process.ready("etcd", LIMIT, || self.server.has("/health"))?);
        Ok(())
    }

    /// Calls `change` with the path of the data while etcd does not run. The data exists at this path, and must exist there when `change` returns.
    pub(crate) fn while_stopped(&mut self, change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.process.take().map_or(Ok(()), Leash::kill)?;
        change(&self.data.0)?;
        self.run()
    }

    pub(crate) fn url(&self) -> String {
        url(self.server.port)
    }

    /// Compacts the whole history, up to a revision that is newer than any revision that the API server has received. Call this only while the API
    /// server is down; otherwise, the API server would receive the new revision.
    pub(crate) fn forget(&self) -> Result<()> {
        // The key does not have the API server's prefix, so a write of it creates a revision, but the API server gets no event. Two writes are
        // needed: a client that has received all events watches from the first new revision, so this revision must be compacted, too.
        let touch = json!({ "key": STANDARD.encode("flyball-e2e"), "value": "" });
        self.call("/v3/kv/put", &touch)?;
        let answer = self.call("/v3/kv/put", &touch)?;
        let revision = answer["header"]["revision"].as_str().context("a put without a revision")?;
        self.call("/v3/kv/compaction", &json!({ "revision": revision, "physical": true }))?;
        Ok(())
    }

    fn call(&self, path: &str, body: &Value) -> Result<Value> {
        let reply = self.server.ask("POST", path, Some(&body.to_string()))?;
        ensure!(reply.status == 200, "etcd, {path}: {reply:?}");
        Ok(serde_json::from_str(&reply.body)?)
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
