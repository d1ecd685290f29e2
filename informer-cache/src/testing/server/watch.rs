//! EDGE. A watch of a test server.
//!
//! Cancel safety: if a future of `next` is dropped, no message is lost.

use std::fmt;
use std::future::poll_fn;

use flyball_sync::{ManualTimer, Timer};

use super::TestServer;
use super::state::{Next, Place};
use crate::{SourceError, WatchEvent, WatchStream};

/// A watch of a [`TestServer`]. Dropping the stream ends the watch.
///
/// # Examples
/// A test reads a watch and causes faults in it:
/// ```
/// use flyball_informer_cache::testing::{TestServer, TestServerWatch};
/// use flyball_informer_cache::{Schema, Source, SourceErrorKind, Version, WatchEvent, WatchRequest, WatchStream};
/// use std::time::Duration;
///
/// let server = TestServer::new(Schema::new(|n: &u64| *n, |_| Version::ZERO), |_, _, _| {});
/// let request = || WatchRequest { from_version: server.version(), streaming_list: false, timeout: Duration::MAX };
/// flyball_sync::block_on(async {
///     let mut watch: TestServerWatch<u64, u64> = server.watch(request()).await.unwrap();
///     server.put(7);
///     assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(7)))));
///     server.repeat_events();
///     assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(7)))));
///     server.send_bookmarks();
///     assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Bookmark(version))) if version == server.version()));
///     server.close_watches();
///     assert!(watch.next().await.is_none());
///
///     server.fail_watch(SourceErrorKind::Internal);
///     assert!(server.watch(request()).await.is_err());
///     drop(watch);
///     assert_eq!(server.open_watches(), 0);
/// });
/// ```
pub struct TestServerWatch<K, V> {
    server: TestServer<K, V>,
    place: Place<V>,
    /// Wakes the task when a delayed event is due.
    timer: Option<ManualTimer>,
}

impl<K, V> TestServerWatch<K, V> {
    pub(super) fn new(server: TestServer<K, V>, place: Place<V>) -> Self {
        Self { server, place, timer: None }
    }
}

impl<K, V> WatchStream for TestServerWatch<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    type Object = V;

    async fn next(&mut self) -> Option<Result<WatchEvent<V>, SourceError>> {
        let Self { server, place, timer } = self;
        poll_fn(|cx| {
            let mut delayed = None;
            let next = server.poll(cx, |state| match state.next(place) {
                Some(Next::NotBefore(due)) => {
                    delayed = state.latency.as_ref().map(|delayed| (delayed.clock.clone(), due));
                    None
                }
                next => next,
            });
            if let Some((clock, due)) = delayed {
                timer.get_or_insert_with(|| clock.timer()).wake_at(due, cx.waker());
            }
            next.map(|next| match next {
                Next::Event(event) => Some(Ok(event)),
                Next::Failed(kind) => Some(Err(kind.into())),
                Next::Ended | Next::NotBefore(_) => None,
            })
        })
        .await
    }
}

impl<K, V> Drop for TestServerWatch<K, V> {
    fn drop(&mut self) {
        let mut state = self.server.state.lock();
        let messages = state.watches.remove(&self.place.number);
        drop(state);
        drop(messages);
    }
}

impl<K, V> fmt::Debug for TestServerWatch<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServerWatch").field("number", &self.place.number).finish_non_exhaustive()
    }
}
