//! EDGE. Whether a program is ready and alive, for the kubelet.
//!
//! Cancel safety: nothing to lose; the server ends with the runtime.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Monitor;
use flyball_ops::OpsServer;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// The controllers of a program, as they are put together.
#[derive(Clone, Debug, Default)]
pub struct Probes(Arc<Mutex<Vec<Monitor>>>);

impl Probes {
    pub(super) fn add(&self, monitor: Monitor) {
        self.0.lock().push(monitor);
    }

    /// Serves them for as long as the program runs.
    pub(super) async fn serve(&self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        eprintln!("probes at {}", listener.local_addr()?);
        let (ready, live) = (self.clone(), self.clone());
        let server = OpsServer::new()
            .readiness_check("controllers", move || match ready.all() {
                all if all.is_empty() => Err("no controller yet".to_owned()),
                all => all.iter().try_for_each(Monitor::ready).map_err(|reason| reason.to_string()),
            })
            .liveness_check("controllers", move || {
                live.all().iter().try_for_each(|monitor| monitor.live(LONGEST))
            });
        tokio::spawn(server.serve(listener, pending()));
        Ok(())
    }

    fn all(&self) -> Vec<Monitor> {
        self.0.lock().clone()
    }
}

/// A reconcile that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(600);
