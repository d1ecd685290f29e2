//! Starts kube-controller-manager with selected controllers. The tests compare the example controllers with these.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::http::{self, Server};
use crate::leash::Leash;
use crate::ports;

const LIMIT: Duration = Duration::from_secs(60);

/// Starts the program, and returns when its controllers are healthy.
pub(crate) fn start(program: &Path, folder: &Path, kubeconfig: &Path, controllers: &[&str]) -> Result<Leash> {
    ensure!(!controllers.is_empty(), "a controller manager without controllers");
    let port = ports::free()?;
    // The certificate of an earlier process is removed, so that it is not used for the new process.
    let certificates = folder.join("controller-manager");
    match fs::remove_dir_all(&certificates) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={}", controllers.join(",")),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", certificates.display()),
        "--bind-address=127.0.0.1".to_owned(),
        // The test starts one process at a time, so no leader election is needed.
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=false".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        "--profiling=false".to_owned(),
    ];
    let process = Leash::start(program, &arguments, folder.join("kube-controller-manager.log"))?;
    let certificate = certificates.join("kube-controller-manager.crt");
    process.ready("kube-controller-manager", LIMIT, || {
        let server = http::trust(&certificate).map(|tls| Server { port, tls: Some(tls), token: None });
        server.is_ok_and(|server| server.has("/healthz"))
    })
}
