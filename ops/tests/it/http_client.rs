//! A server on its own socket, and an HTTP client for it.

use std::io::ErrorKind;
use std::net::SocketAddr;

use flyball_ops::OpsServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Served {
    address: SocketAddr,
    shutdown: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

pub(crate) async fn serve(server: OpsServer) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, shut) = oneshot::channel();
    let server = tokio::spawn(server.serve(listener, async { drop(shut.await) }));
    Served { address, shutdown, server }
}

pub(crate) async fn write(stream: &TcpStream, request: &str) {
    stream.writable().await.unwrap();
    assert_eq!(stream.try_write(request.as_bytes()).unwrap(), request.len());
}

/// Returns the next part of a response, or an empty string at the end of the response.
pub(crate) async fn read(stream: &TcpStream) -> String {
    let mut part = vec![0; 4096];
    loop {
        stream.readable().await.unwrap();
        match stream.try_read(&mut part) {
            Ok(len) => return String::from_utf8(part[..len].to_vec()).unwrap(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

impl Served {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request, and returns the status, the header and the body of the response.
    pub(crate) async fn request(&self, request: &str) -> (u16, String, String) {
        let stream = self.connect().await;
        let request = format!("{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        write(&stream, &request).await;
        let mut response = String::new();
        loop {
            match read(&stream).await {
                part if part.is_empty() => break,
                part => response.push_str(&part),
            }
        }
        let (header, body) = response.split_once("\r\n\r\n").unwrap();
        (header[9..12].parse().unwrap(), header.to_lowercase(), body.to_owned())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.request(&format!("GET {path}")).await;
        (status, body)
    }

    pub(crate) async fn end(self) {
        self.shutdown.send(()).unwrap();
        self.server.await.unwrap().unwrap();
        assert!(TcpStream::connect(self.address).await.is_err(), "the listener is closed");
    }
}

#[track_caller]
pub(crate) fn assert_has_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|found| found == *line), "{line} is not in\n{page}");
    }
}
