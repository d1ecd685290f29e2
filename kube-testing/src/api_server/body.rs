//! EDGE. The body of a response: a complete body, or the stream of a watch.
//!
//! Cancel safety: an event is removed from the state in the poll that returns it. Dropping the body closes its watch.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Sleep, sleep};

use crate::api_server::ApiServer;
use crate::state::watches::End;

/// The body of a response of an [`ApiServer`].
///
/// # Examples
/// The server as a tower service, without a `kube::Client`:
/// ```
/// use flyball_kube_testing::{ApiBody, ApiServer};
/// use http::{Request, Response};
/// use http_body_util::BodyExt;
/// use kube::client::Body;
/// use tower_service::Service;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let request = Request::get("/version").body(Body::empty())?;
/// let response: Response<ApiBody> = ApiServer::new().call(request).await?;
/// assert_eq!(response.status(), 200);
/// assert!(response.into_body().collect().await?.to_bytes().starts_with(b"{"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ApiBody(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    Watch { server: ApiServer, id: u64, time: Option<Pin<Box<Sleep>>> },
}

impl ApiBody {
    pub(crate) fn whole(body: Vec<u8>) -> Self {
        Self(Kind::Whole(Some(body.into())))
    }

    pub(crate) fn stream(server: ApiServer, id: u64, timeout: Option<u64>) -> Self {
        let time = timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs).map(sleep).map(Box::pin);
        Self(Kind::Watch { server, id, time })
    }
}

impl Body for ApiBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Kind::Watch { server, id, time } => {
                if let Some(sleep) = time
                    && sleep.as_mut().poll(context).is_ready()
                {
                    *time = None;
                    server.run_out(*id);
                }
                match server.poll_watch(*id, context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(line)) => Poll::Ready(Some(Ok(Frame::data(line.into())))),
                    Poll::Ready(Err(End::Closed)) => Poll::Ready(None),
                    Poll::Ready(Err(End::Broken)) => {
                        server.close(*id);
                        Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
                    }
                }
            }
        }
    }
}

impl Drop for ApiBody {
    fn drop(&mut self) {
        if let Kind::Watch { server, id, .. } = &self.0 {
            server.close(*id);
        }
    }
}
