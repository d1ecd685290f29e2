//! An API server that sends exactly the answers that a test specifies, including invalid ones.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, service_fn};

/// One answer.
pub(crate) enum Answer {
    /// A response with this status code, these headers and this body.
    Text(u16, HeaderMap, String),
    /// A response whose body consists of the texts that arrive in the channel. It ends when the sender is dropped.
    Lines(UnboundedReceiver<io::Result<String>>),
    /// No response: the connection fails.
    Failed(io::Error),
    /// No response, without an error.
    Hangs,
}

impl Answer {
    pub(crate) fn json(value: &Value) -> Self {
        Self::Text(200, HeaderMap::new(), value.to_string())
    }

    pub(crate) fn status(value: &Value) -> Self {
        let code = value["code"].as_u64().unwrap();
        Self::Text(code.try_into().unwrap(), HeaderMap::new(), value.to_string())
    }

    /// Returns the answer to a watch request, and the sender of the watch's lines.
    pub(crate) fn watch() -> (Self, Lines) {
        let (sender, receiver) = unbounded_channel();
        (Self::Lines(receiver), Lines(sender))
    }
}

/// The sender of the lines of a watch.
pub(crate) struct Lines(UnboundedSender<io::Result<String>>);

impl Lines {
    pub(crate) fn send(&self, event: &str, object: &Value) {
        self.raw(&format!("{}\n", serde_json::json!({"type": event, "object": object})));
    }

    pub(crate) fn raw(&self, text: &str) {
        self.0.send(Ok(text.to_owned())).unwrap();
    }

    pub(crate) fn fail(self, error: io::Error) {
        self.0.send(Err(error)).unwrap();
    }
}

/// The requests so far, and the remaining answers. Once all answers are used, requests hang.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    requests: Vec<Request<()>>,
    answers: VecDeque<Answer>,
}

impl Script {
    pub(crate) fn of(answers: impl IntoIterator<Item = Answer>) -> Self {
        let script = Self::default();
        script.0.lock().answers.extend(answers);
        script
    }

    pub(crate) fn client(&self) -> Client {
        let script = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let answer = {
                let mut state = script.0.lock();
                state.requests.push(request.map(drop));
                state.answers.pop_front()
            };
            async move {
                match answer {
                    Some(Answer::Hangs) | None => std::future::pending().await,
                    Some(answer) => answered(answer),
                }
            }
        });
        shipped(service)
    }

    /// Returns the requests, as path and query.
    pub(crate) fn requests(&self) -> Vec<String> {
        let text = |request: &Request<()>| {
            request.uri().to_string().replace("?&", "?").trim_end_matches('?').to_owned()
        };
        self.0.lock().requests.iter().map(text).collect()
    }

    /// Returns a header of the last request.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let state = self.0.lock();
        state.requests.last()?.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    }
}

/// Returns a client of the service with the layer of `Client::try_default()` that matters to its users: kube's retries.
pub(crate) fn shipped<S, B>(service: S) -> Client
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let retries = RetryLayer::new(RetryPolicy::server_retry());
    ClientBuilder::new(service, "default").with_layer(&retries).build()
}

fn answered(answer: Answer) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
    let response = match answer {
        Answer::Failed(error) => return Err(error.into()),
        Answer::Hangs => unreachable!("it has no response"),
        Answer::Text(code, headers, text) => {
            let body = Full::new(Bytes::from(text)).map_err(BoxError::from).boxed_unsync();
            let mut response = Response::builder().status(code).body(body)?;
            *response.headers_mut() = headers;
            response
        }
        Answer::Lines(receiver) => {
            let lines =
                stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
            let frames = lines.map(|line| match line {
                Ok(line) => Ok(Frame::data(Bytes::from(line))),
                Err(error) => Err(BoxError::from(error)),
            });
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
    };
    Ok(response)
}
