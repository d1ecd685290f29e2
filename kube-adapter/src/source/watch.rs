//! EDGE. A running watch: lines of a body that has no end.
//!
//! Cancel safety: see the parent module. It is not used again after a future of it was dropped.

use std::fmt;
use std::io;
use std::marker::PhantomData;

use flyball_informer_cache::{Event, SourceError, Version, Watch, WatchRequest};
use futures_util::io::AsyncBufReadExt;
use futures_util::stream::{IntoAsyncRead, MapErr, TryStreamExt};
use http_body_util::{BodyDataStream, BodyExt};
use kube::Resource;
use kube::client::Body;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::task::coop::consume_budget;

use super::decode::{self, Instead, Line};
use super::skipped::Skipped;
use super::unread::Unread;
use crate::names::key_of;
use crate::source_error::{is_lost, told};

/// The room a line may take for good, and what costs one unit of the task's budget to read.
const PIECE: usize = 4096;

type Lines = IntoAsyncRead<MapErr<BodyDataStream<Body>, fn(kube::Error) -> io::Error>>;

/// A running watch of an [`ApiSource`](crate::ApiSource).
pub struct ApiWatch<K> {
    lines: Lines,
    line: Vec<u8>,
    /// It tells first what exists, in no order, so the version of one object says nothing about the others.
    unordered: bool,
    skipped: Skipped,
    /// Until a streaming list is complete.
    listing: Option<Unread>,
    url: String,
    objects: PhantomData<fn() -> K>,
}

impl<K> ApiWatch<K> {
    pub(super) fn new(
        body: Body,
        request: &WatchRequest,
        skipped: Skipped,
        listing: Option<Unread>,
        url: String,
    ) -> Self {
        let failed: fn(kube::Error) -> io::Error = io::Error::other;
        let lines = body.into_data_stream().map_err(failed).into_async_read();
        let unordered = request.from == Version::ZERO && !request.streaming_list;
        Self { lines, line: Vec::new(), unordered, skipped, listing, url, objects: PhantomData }
    }

    /// The next line; `None` at the end, also in the middle of a line, which the next watch tells again.
    async fn line(&mut self) -> Option<Result<(), io::Error>> {
        self.line.clear();
        self.line.shrink_to(PIECE);
        match self.lines.read_until(b'\n', &mut self.line).await {
            Ok(_) if self.line.ends_with(b"\n") => Some(Ok(())),
            Ok(_) => None,
            // The watch is over, and can go on where it was.
            Err(error) if is_lost(&error) => {
                tracing::debug!(url = self.url, %error, "the connection of a watch is lost");
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<K: Resource> ApiWatch<K> {
    /// Notes what an event says of the list under way.
    fn listed(&mut self, event: &Event<K>) {
        match (&self.listing, event) {
            (Some(unread), Event::Deleted(object)) => drop(key_of(object).map(|key| unread.remove(&key))),
            (Some(_), Event::InitialEnd(_)) => self.listing = None,
            _ => {}
        }
    }
}

impl<K> Watch for ApiWatch<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;

    async fn next(&mut self) -> Option<Result<Event<K>, SourceError>> {
        let failed = |error| Some(Err(told(error)));
        loop {
            if let Err(error) = self.line().await? {
                return failed(watcher::Error::WatchFailed(kube::Error::ReadEvents(error)));
            }
            // A connection that always has more to read, and a runtime with one thread: others get their turn.
            for _ in 0..=self.line.len() / PIECE {
                consume_budget().await;
            }
            let (unreadable, instead) = match decode::line(&self.line) {
                Line::Event(event) => {
                    self.listed(&event);
                    return Some(Ok(event));
                }
                Line::Failed(status) => return failed(watcher::Error::WatchError(status)),
                Line::Unreadable(unreadable, instead) => (unreadable, instead),
            };
            self.skipped.add(&self.url, &unreadable);
            if let Some(unread) = &self.listing {
                unread.add(&unreadable);
            }
            match instead {
                Instead::Tell(Event::Bookmark(_)) if self.unordered => {}
                Instead::Nothing => {}
                Instead::Tell(event) => {
                    self.listed(&event);
                    return Some(Ok(event));
                }
                Instead::List => {
                    let error = serde::de::Error::custom(unreadable.error);
                    return failed(watcher::Error::WatchFailed(kube::Error::SerdeError(error)));
                }
            }
        }
    }
}

impl<K> fmt::Debug for ApiWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiWatch").field("url", &self.url).finish_non_exhaustive()
    }
}
