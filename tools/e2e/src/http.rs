//! Sends one request per connection. This is sufficient to check whether a server is ready, and for tests that use no
//! Kubernetes client.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustls::crypto::ring;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// The longest time that a request waits for data from a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body. For a watch, the body has all events until the end of the watch.
    pub body: String,
}

/// The address of a server and its connection settings.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) token: Option<String>,
}

impl Server {
    /// Returns true if a GET request for `path` succeeds. The health checks of the servers use this method.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.ask("GET", path, None).is_ok_and(|reply| reply.status == 200)
    }

    /// Sends a request and reads the complete response. The response to a watch request is complete when the watch ends.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<Reply> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{scheme}://127.0.0.1:{}{path}", self.port))
            .header("connection", "close")
            .header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.agent().run(request.body(body.unwrap_or_default())?)?;
        let status = response.status().as_u16();
        let body = read(response.into_body().into_reader())?;
        Ok(Reply { status, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Creates an agent that does not reuse connections, because the server of an earlier connection may have been killed.
    fn agent(&self) -> Agent {
        let config = Agent::config_builder()
            .tls_config(self.tls.clone().unwrap_or_default())
            .timeout_connect(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .timeout_per_write(Some(PATIENCE))
            // Any status is a response. No proxy is used for loopback addresses, even if environment variables define one.
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        config.build().into()
    }
}

/// Returns a TLS configuration that trusts the signer in the file `certificate`. A Kubernetes server generates this file. The file contains the
/// certificate of the server, followed by the certificate of its signer.
pub(crate) fn trust(certificate: &Path) -> Result<TlsConfig> {
    let mut signers = Vec::new();
    for item in parse_pem(&fs::read(certificate)?).skip(1) {
        if let PemItem::Certificate(signer) = item? {
            signers.push(signer);
        }
    }
    ensure!(!signers.is_empty(), "{}: no signer", certificate.display());
    let provider = Arc::new(ring::default_provider());
    let trusted = RootCerts::Specific(Arc::new(signers));
    Ok(TlsConfig::builder().root_certs(trusted).unversioned_rustls_crypto_provider(provider).build())
}

/// Reads the body. If a server is killed, its response has no proper end. In this case, the bytes that were received before are returned.
fn read(mut body: impl Read) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    match body.read_to_end(&mut read) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(read),
        end => end.map(|_| read),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::thread::{self, JoinHandle};

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// Starts a server on loopback that answers one request. Its thread returns the bytes of the request, even if the request is incomplete.
    fn serve<S: Read + Write>(
        answer: &'static str,
        wrap: impl FnOnce(TcpStream) -> S + Send + 'static,
    ) -> (u16, JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let mut stream = wrap(listener.accept().unwrap().0);
            let mut asked = Vec::new();
            let mut some = [0; 512];
            while !is_whole(&asked) {
                match stream.read(&mut some) {
                    Ok(count @ 1..) => asked.extend(&some[..count]),
                    _ => return String::from_utf8(asked).unwrap(),
                }
            }
            stream.write_all(answer.as_bytes()).unwrap();
            stream.flush().unwrap();
            String::from_utf8(asked).unwrap()
        });
        (port, server)
    }

    fn is_whole(asked: &[u8]) -> bool {
        let asked = str::from_utf8(asked).unwrap();
        let Some((head, body)) = asked.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        length.parse() == Ok(body.len())
    }

    fn plain(port: u16) -> Server {
        Server { port, tls: None, token: None }
    }

    fn certificate(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
    }

    /// Wraps a connection in TLS, with the certificate in `server.crt`. No closing message is sent at its end, as if the server had been killed.
    fn tls(stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
        let chain = CertificateDer::pem_file_iter(certificate("server.crt")).unwrap();
        let chain = chain.take(1).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(chain, key).unwrap();
        StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream)
    }

    #[test]
    fn sends_token_path_and_body() {
        for (method, body) in [("GET", None), ("POST", Some("{}")), ("POST", None), ("DELETE", Some("{}"))] {
            let (port, server) = serve("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", |stream| stream);
            let reply =
                Server { token: Some("secret".to_owned()), ..plain(port) }.ask(method, "/a?b=c", body);
            assert_eq!(reply.unwrap(), Reply { status: 200, body: "hi".to_owned() });
            let asked = server.join().unwrap();
            let (head, sent) = asked.split_once("\r\n\r\n").unwrap();
            let lines: Vec<&str> = head.lines().collect();
            assert_eq!(lines[0], format!("{method} /a?b=c HTTP/1.1"));
            assert!(lines.contains(&"authorization: Bearer secret"), "{head}");
            assert!(lines.contains(&"content-type: application/json"), "{head}");
            assert_eq!(sent, body.unwrap_or_default());
        }
    }

    #[test]
    fn any_status_is_an_answer() {
        for (answer, status) in [
            ("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\nno\r\n\r\nsuch", 404),
            ("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 10\r\n\r\nno\r\n\r\nsuch", 302),
            (
                "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nno\r\n\r\n6\r\n\r\nsuch\r\n0\r\n\r\n",
                500,
            ),
        ] {
            let (port, server) = serve(answer, |stream| stream);
            let reply = plain(port).ask("GET", "/", None).unwrap();
            assert_eq!(reply, Reply { status, body: "no\r\n\r\nsuch".to_owned() });
            server.join().unwrap();
        }
    }

    #[test]
    fn what_was_said_before_a_kill_counts() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ] {
            let (port, server) = serve(answer, |stream| stream);
            assert_eq!(plain(port).ask("GET", "/", None).unwrap().body, "abc");
            server.join().unwrap();
        }
    }

    #[test]
    fn half_a_head_is_an_error() {
        for answer in ["", "HTTP/1.0 200 OK\r\nA: b", "HTTP/1.0\r\n\r\n"] {
            let (port, server) = serve(answer, |stream| stream);
            assert!(plain(port).ask("GET", "/", None).is_err());
            server.join().unwrap();
        }
    }

    #[test]
    fn trusts_the_signer_of_the_certificate() {
        let (port, server) = serve("HTTP/1.1 200 OK\r\n\r\nabc", tls);
        let trusted = Some(trust(&certificate("server.crt")).unwrap());
        let reply = Server { tls: trusted, ..plain(port) }.ask("GET", "/", None).unwrap();
        assert_eq!(reply, Reply { status: 200, body: "abc".to_owned() });
        server.join().unwrap();
    }

    #[test]
    fn rejects_every_other_certificate() {
        let (port, server) = serve("HTTP/1.1 200 OK\r\n\r\nabc", tls);
        let trusted = Some(trust(&certificate("of-another.crt")).unwrap());
        let error = Server { tls: trusted, ..plain(port) }.ask("GET", "/", None).unwrap_err();
        assert!(format!("{error:#}").contains("UnknownIssuer"), "{error:#}");
        assert_eq!(server.join().unwrap(), "");
    }

    #[test]
    fn a_certificate_without_its_signer_is_refused() {
        let both = fs::read_to_string(certificate("server.crt")).unwrap();
        let (own, _) = both.split_at(both.rfind("-----BEGIN").unwrap());
        let path = std::env::temp_dir().join(format!("flyball-http-{}", std::process::id()));
        fs::write(&path, own).unwrap();
        let error = trust(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(error.ends_with(": no signer"), "{error}");
    }
}
