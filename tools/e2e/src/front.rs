//! A second address for the API server. A test can cut the connections to this address; this does not affect the server.

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

/// A proxy for the API server of a [`Cluster`](crate::Cluster). It forwards all bytes unchanged, so TLS connections end at the API server.
///
/// If a test kills the server, the caches of the server are lost, too, so a client may have to list again before it can watch. If a test only cuts a
/// connection, the server does not change, and a new watch continues from the last version.
#[derive(Debug)]
pub struct Front {
    port: u16,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Both sockets of each connection that was opened since the last cut. Many of these connections may have ended; cutting such a connection has no
    /// effect.
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
        // Any free port is suitable, even one from the range for outgoing connections: the proxy listens on it all the time, so no client can get it
        // as its local port. The port of a server that a test kills is not in use all the time.
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

    /// Returns the path of a kubeconfig like [`Cluster::kubeconfig`](crate::Cluster::kubeconfig), but with the address of this proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Cuts every connection that has transferred data before this call. New connections are accepted.
    pub fn cut(&self) {
        for end in self.shared.open.lock().drain(..) {
            // The connection may have ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire in `accept`. The next line opens a connection to wake the thread that waits in `accept`. The
        // thread then reads the flag.
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
        // While the server is down, `connect` returns an error and drops the client's connection, so the client gets an error, too.
        let _ = client.and_then(|client| connect(client, behind, shared));
    }
}

fn connect(client: TcpStream, behind: u16, shared: &Shared) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, behind))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // The sockets are stored before the first byte is forwarded. So if a test has received data from a connection, `cut` cuts this connection.
    shared.open.lock().extend([client.try_clone()?, server.try_clone()?]);
    copy(client.try_clone()?, server.try_clone()?);
    copy(server, client);
    Ok(())
}

/// Starts a thread that copies the bytes from one socket to the other until the connection ends.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
