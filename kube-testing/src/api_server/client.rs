//! EDGE. The HTTP service of the server: a tower service to which `kube`'s client sends its requests.
//!
//! Cancel safety: if a request is dropped before its response arrives, the server has executed it either completely or not at all. A real server
//! guarantees no more.

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
use crate::request::RecordedRequest;
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
        let request = match RecordedRequest::read(&parts) {
            Ok(request) => request,
            Err(status) => return Ok(whole(Answer::error(&status))),
        };
        self.log(&request);
        if let Some(latency) = self.latency(&request) {
            tokio::time::sleep(latency).await;
        }
        let verdict = loop {
            // Subscribes to `resume` before the check, so that a `resume` between the check and the wait is not missed.
            let resumed = self.resumed();
            match self.verdict(&request) {
                Verdict::Hang => resumed.await,
                verdict => break verdict,
            }
        };
        let failed_response = match verdict {
            Verdict::RefuseConnection => return Err(io::ErrorKind::ConnectionRefused.into()),
            Verdict::Fail(status) => return Ok(whole(Answer::error(&status))),
            Verdict::FailResponse(status) => Some(status),
            Verdict::Answer | Verdict::Hang => None,
        };
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let answer = self.carry_out(&request, &body);
        if let Some(status) = failed_response {
            return Ok(whole(Answer::error(&status)));
        }
        Ok(match answer {
            Answer::Stream(id) => {
                let timeout = request.query_param("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
                respond(200, ApiBody::stream(self, id, timeout))
            }
            answer => whole(answer),
        })
    }
}

fn whole(answer: Answer) -> Response<ApiBody> {
    match answer {
        Answer::Whole(code, body) => respond(code, ApiBody::whole(body)),
        Answer::Failed(code, body, retry_after) => {
            let mut response = respond(code, ApiBody::whole(body));
            if retry_after > 0 {
                response.headers_mut().insert(http::header::RETRY_AFTER, retry_after.into());
            }
            response
        }
        Answer::Stream(_) => unreachable!("a stream has no whole body"),
    }
}

fn respond(code: u16, body: ApiBody) -> Response<ApiBody> {
    let response = Response::builder().status(code).header(http::header::CONTENT_TYPE, "application/json");
    response.body(body).expect("a status code that a test gave is valid")
}
