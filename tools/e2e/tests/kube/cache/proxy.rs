//! A TCP proxy whose connections a test can cut.

use std::io;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards the connections of a local port. Dropping the proxy cuts the connections.
pub(super) struct Proxy {
    pub(super) port: u16,
    /// The number of cuts. A connection that began before the last cut is closed.
    cut: watch::Sender<u64>,
}

impl Proxy {
    pub(super) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), cut: watch::Sender::new(0) };
        let cuts = proxy.cut.subscribe();
        tokio::spawn(async move {
            let mut end = cuts.clone();
            let accepting = async {
                while let Ok((near, _)) = listener.accept().await {
                    tokio::spawn(forward(near, port, cuts.clone()));
                }
            };
            tokio::select! {
                () = accepting => {}
                () = async { while end.changed().await.is_ok() {} } => {}
            }
        });
        proxy
    }

    /// Breaks all current connections.
    pub(super) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn forward(near: TcpStream, port: u16, mut cuts: watch::Receiver<u64>) {
    cuts.mark_unchanged();
    if let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await {
        tokio::select! {
            _ = copy(&near, &far) => {}
            _ = copy(&far, &near) => {}
            _ = cuts.changed() => {}
        }
    }
}

async fn copy(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        from.readable().await?;
        let mut rest = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        while !rest.is_empty() {
            to.writable().await?;
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
