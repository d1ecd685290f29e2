//! A second address of the API server, whose connections a test can cut without a change of the server.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::credentials::Credentials;

/// A way to the API server of a [`Cluster`](crate::Cluster): bytes go through as they are, TLS included.
///
/// Killing a server also empties its caches, so that a watch may have to begin anew; a connection that is cut leaves the server
/// with all it knows, and a watch goes on from its last version.
#[derive(Debug)]
pub struct Front {
    port: u16,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Both ends of each connection since the last cut: many have ended since, and to cut those again does nothing.
    open: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

impl Front {
    pub(crate) fn open(
        behind: u16,
        folder: &Path,
        credentials: &Credentials,
        authority: &Path,
    ) -> Result<Self> {
        // Not of the range for servers: this port is known before anybody connects, and stays taken.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a front")?;
        let port = listener.local_addr()?.port();
        let kubeconfig = folder.join(format!("kubeconfig-{port}"));
        fs::write(&kubeconfig, credentials.kubeconfig(&format!("https://127.0.0.1:{port}"), authority))?;
        let shared = Arc::<Shared>::default();
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, behind, &shared)
        });
        Ok(Self { port, kubeconfig, shared, acceptor: Some(acceptor) })
    }

    /// As [`Cluster::kubeconfig`](crate::Cluster::kubeconfig), by way of this.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Breaks every connection that anything came through before this call. New ones are let through.
    pub fn cut(&self) {
        for end in self.shared.open.lock().drain(..) {
            // It may have ended by itself.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Ordering: Release, with the Acquire of the acceptor: whom the connection below wakes sees it.
        self.shared.over.store(true, Ordering::Release);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.cut();
    }
}

fn accept(listener: &TcpListener, behind: u16, shared: &Shared) {
    for client in listener.incoming() {
        // Ordering: Acquire, with the Release store in `Drop`.
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        // The server refuses while it is down; dropping the client's connection reports that to the client.
        let _ = client.and_then(|client| connect(client, behind, shared));
    }
}

fn connect(client: TcpStream, behind: u16, shared: &Shared) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, behind))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // Before the first byte goes through: a connection that a test has heard from can be cut.
    shared.open.lock().extend([client.try_clone()?, server.try_clone()?]);
    copy(client.try_clone()?, server.try_clone()?);
    copy(server, client);
    Ok(())
}

/// One direction, by a thread that ends with it.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
