//! EDGE. The readiness and liveness probes of a program.
//!
//! Cancel safety: a dropped future loses no state. The server runs until the tokio runtime ends.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Monitor;
use flyball_ops::OpsServer;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// The monitors of a program's controllers. The monitor of a controller is added when the controller is built.
#[derive(Clone, Debug, Default)]
pub struct Probes(Arc<Mutex<Vec<Monitor>>>);

impl Probes {
    pub(super) fn add(&self, monitor: Monitor) {
        self.0.lock().push(monitor);
    }

    /// Serves the probes until the runtime ends.
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

/// The liveness probe fails if a reconcile takes longer than this time.
const LONGEST: Duration = Duration::from_secs(600);
