//! A second address of the API server. A test can cut the connections to this address without affecting the server.

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

/// A proxy for the API server of a [`Cluster`](crate::Cluster). It forwards bytes unchanged, TLS included.
///
/// Killing a server also empties its caches, so that a watch may have to start again with a list. Cutting a connection
/// leaves the server unchanged, and a watch continues from its last version.
#[derive(Debug)]
pub struct Front {
    port: u16,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Both ends of each connection opened since the last cut. Many of them may have ended; cutting an ended connection has no effect.
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
        // Any free port is suitable. Unlike a server's port, it stays in use from now on, so no client can get it as its local port.
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

    /// Like [`Cluster::kubeconfig`](crate::Cluster::kubeconfig), with the address of this front.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Cuts every connection through which bytes have passed before this call. New connections are accepted.
    pub fn cut(&self) {
        for end in self.shared.open.lock().drain(..) {
            // The connection may have ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire in `accept`: the connection below wakes the acceptor, which then
        // reads the flag.
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
        // Ordering: Acquire, pairs with the Release in `Drop`.
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        // While the server is down, `connect` fails and drops the client's connection, so the client gets an error.
        let _ = client.and_then(|client| connect(client, behind, shared));
    }
}

fn connect(client: TcpStream, behind: u16, shared: &Shared) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, behind))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // Stored before the first byte is forwarded, so that `cut` cuts every connection from which a test has received data.
    shared.open.lock().extend([client.try_clone()?, server.try_clone()?]);
    copy(client.try_clone()?, server.try_clone()?);
    copy(server, client);
    Ok(())
}

/// Starts a thread that copies the bytes of one direction until the connection ends.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
