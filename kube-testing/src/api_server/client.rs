//! EDGE. The HTTP of the server: a tower service under `kube`'s client.
//!
//! Cancel-safety: a request that is dropped before its answer was not carried out, or wholly; a real server gives no more.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use tower_service::Service;

use crate::api_server::ApiServer;
use crate::api_server::body::ApiBody;
use crate::api_server::faults::Verdict;
use crate::request::Request;
use crate::state::answer::Answer;

impl Service<http::Request<Body>> for ApiServer {
    type Response = Response<ApiBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<ApiBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { server.serve(request).await })
    }
}

impl ApiServer {
    async fn serve(self, request: http::Request<Body>) -> io::Result<Response<ApiBody>> {
        let (parts, body) = request.into_parts();
        let request = match Request::read(&parts) {
            Ok(request) => request,
            Err(status) => return Ok(whole(Answer::problem(&status))),
        };
        self.log(&request);
        if let Some(delay) = self.delay(&request) {
            tokio::time::sleep(delay).await;
        }
        let verdict = loop {
            // Asked for before the look, so that a thaw in between is not missed.
            let thawed = self.thawed();
            match self.verdict(&request) {
                Verdict::Hold => thawed.await,
                verdict => break verdict,
            }
        };
        let lie = match verdict {
            Verdict::Refuse => return Err(io::ErrorKind::ConnectionRefused.into()),
            Verdict::Fail(status) => return Ok(whole(Answer::problem(&status))),
            Verdict::Lie(status) => Some(status),
            Verdict::Go | Verdict::Hold => None,
        };
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let answer = self.carry_out(&request, &body);
        if let Some(status) = lie {
            return Ok(whole(Answer::problem(&status)));
        }
        Ok(match answer {
            Answer::Stream(id) => {
                let timeout = request.param("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
                respond(200, ApiBody::stream(self, id, timeout))
            }
            answer => whole(answer),
        })
    }
}

fn whole(answer: Answer) -> Response<ApiBody> {
    match answer {
        Answer::Whole(code, body) => respond(code, ApiBody::whole(body)),
        Answer::Stream(_) => unreachable!("a stream is no whole"),
    }
}

fn respond(code: u16, body: ApiBody) -> Response<ApiBody> {
    let response = Response::builder().status(code).header(http::header::CONTENT_TYPE, "application/json");
    response.body(body).expect("a code that a test gave is one of HTTP")
}
