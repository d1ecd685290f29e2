//! One request on one connection: enough to ask a server whether it is ready, and to test without a Kubernetes client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// All that came after the head; of a watch, every event until it ended.
    pub body: String,
}

/// Where a server is and how to speak with it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) token: Option<String>,
}

impl Server {
    /// Whether what is at `path` is there: the form in which servers say that they are well.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.ask("GET", path, None).is_ok_and(|reply| reply.status == 200)
    }

    /// Asks once. HTTP/1.0, so that the answer ends where the connection does, watches included.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n", self.port);
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let body = body.unwrap_or_default();
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len()));
        let request = head + body;
        let answer = match &self.tls {
            None => exchange(stream, &request)?,
            Some(config) => {
                let name = ServerName::from(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST));
                let tls = ClientConnection::new(Arc::clone(config), name)?;
                exchange(StreamOwned::new(tls, stream), &request)?
            }
        };
        parse(&answer)
    }
}

/// A client that trusts who signed `certificate`, which a server of Kubernetes made for itself: its own, then its signer's.
pub(crate) fn trust(certificate: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(certificate)?.skip(1) {
        roots.add(one?)?;
    }
    ensure!(!roots.is_empty(), "{}: no signer", certificate.display());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // A server that was killed does not say goodbye in TLS; what it said counts.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(answer),
        end => end.map(|_| answer),
    }
}

fn parse(answer: &[u8]) -> Result<Reply> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without a head")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("an answer without a status: {head}"))?;
    Ok(Reply { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_body_are_told_apart() {
        let reply = parse(b"HTTP/1.0 404 Not Found\r\nA: b\r\n\r\nno\r\n\r\nsuch").unwrap();
        assert_eq!(reply, Reply { status: 404, body: "no\r\n\r\nsuch".to_owned() });
    }

    #[test]
    fn half_an_answer_is_an_error() {
        assert!(parse(b"").is_err());
        assert!(parse(b"HTTP/1.0 200 OK\r\nA: b").is_err());
        assert!(parse(b"HTTP/1.0\r\n\r\n").is_err());
    }
}
