//! EDGE. A source that returns scripted responses.
//!
//! Cancel safety: a request that is dropped while it waits does not consume an answer.
//!
//! | guarded by `script` | |
//! |---|---|
//! | answers, messages, the recorded requests | a call that adds an answer wakes all waiters, outside the lock |

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flyball_sync::locks::Mutex;
use flyball_sync::panics::raise;
use flyball_sync::waiting::wake_all;

use crate::{ListRequest, Page, Source, SourceError, WatchEvent, WatchRequest, WatchStream};

/// A request to a [`ScriptedSource`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// A request for a page.
    List(ListRequest),
    /// A request for a watch.
    Watch(WatchRequest),
}

/// A source that returns scripted responses. This type is a handle: clones share the script.
///
/// A test adds answers to the script. Each answer is used for one request, in the order in which the answers were added. If no answer is left, a
/// request waits until one is added.
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::{SourceRequest, ScriptedSource};
/// use flyball_informer_cache::{WatchEvent, Informer, Page, Schema, Version};
/// use flyball_sync::ManualClock;
/// use std::pin::pin;
/// use std::task::{Context, Waker};
///
/// const NUMBERS: Schema<u64, u64> = Schema::new(|n| n % 10, |n| Version::new(*n));
///
/// let source = ScriptedSource::new();
/// source.answer_list(Ok(Page { items: vec![1, 2], version: Version::new(7), continuation: None }));
/// source.answer_watch(Ok(()));
/// source.send(WatchEvent::Modified(12));
///
/// let clock = ManualClock::new();
/// let (numbers, run) = Informer::builder(NUMBERS, source.clone()).timer(clock.timer()).build()?;
/// let mut run = pin!(run);
/// assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
///
/// assert!(numbers.is_synced());
/// assert_eq!(numbers.store().get(&2).as_deref(), Some(&12));
/// assert!(matches!(source.requests()[1], SourceRequest::Watch(ref request) if request.from_version == Version::new(7)));
/// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
/// ```
pub struct ScriptedSource<V> {
    script: Arc<Mutex<Script<V>>>,
}

struct Script<V> {
    lists: VecDeque<Result<Page<V>, SourceError>>,
    watches: VecDeque<Result<u64, SourceError>>,
    /// The messages of each watch that was not dropped, with the number of the watch.
    messages: Vec<(u64, VecDeque<Message<V>>)>,
    newest: u64,
    open: usize,
    requests: Vec<SourceRequest>,
    waiting: Vec<Waker>,
}

/// A message of a watch: an event, an error, or its end.
type Message<V> = Option<Result<WatchEvent<V>, SourceError>>;

impl<V> ScriptedSource<V> {
    /// Creates a source with an empty script.
    #[must_use]
    pub fn new() -> Self {
        let script = Script {
            lists: VecDeque::new(),
            watches: VecDeque::new(),
            messages: Vec::new(),
            newest: 0,
            open: 0,
            requests: Vec::new(),
            waiting: Vec::new(),
        };
        Self { script: Arc::new(Mutex::new(script)) }
    }

    /// Adds the answer to a list request. The answer is for the first list request that has no answer yet.
    pub fn answer_list(&self, answer: Result<Page<V>, SourceError>) {
        self.change(|script| script.lists.push_back(answer));
    }

    /// Adds the answer to a watch request. The answer is for the first watch request that has no answer yet.
    pub fn answer_watch(&self, answer: Result<(), SourceError>) {
        self.change(|script| {
            let answer = answer.map(|()| {
                script.newest += 1;
                script.messages.push((script.newest, VecDeque::new()));
                script.newest
            });
            script.watches.push_back(answer);
        });
    }

    /// Sends an event on the watch that was [added](Self::answer_watch) last.
    ///
    /// # Panics
    /// Panics if no watch was added, or if that watch was dropped.
    #[track_caller]
    pub fn send(&self, event: WatchEvent<V>) {
        self.push_message(Some(Ok(event)));
    }

    /// Sends an error on the watch that was [added](Self::answer_watch) last.
    ///
    /// # Panics
    /// Panics if no watch was added, or if that watch was dropped.
    ///
    /// # Examples
    /// Fails a watch, and checks the informer's next request:
    /// ```
    /// use flyball_informer_cache::testing::{ScriptedSource, SourceRequest};
    /// use flyball_informer_cache::{Informer, ManualClock, Page, Schema, SourceErrorKind, Version};
    /// use std::{pin::pin, task::{Context, Waker}, time::Duration};
    ///
    /// const NUMBERS: Schema<u64, u64> = Schema::new(|n| n % 10, |n| Version::new(*n));
    /// let source = ScriptedSource::new();
    /// source.answer_list(Ok(Page { items: vec![1], version: Version::new(7), continuation: None }));
    /// source.answer_watch(Ok(()));
    ///
    /// let clock = ManualClock::new();
    /// let (numbers, run) = Informer::builder(NUMBERS, source.clone()).timer(clock.timer()).build()?;
    /// let mut run = pin!(run);
    /// let mut turn = || assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// turn();
    /// assert_eq!((source.open_watches(), source.requests().len()), (1, 2));
    ///
    /// source.fail_watch(SourceErrorKind::ConnectionRefused.into());
    /// turn();
    /// clock.advance(Duration::from_secs(2));
    /// turn();
    /// assert!(matches!(&source.requests()[..], [SourceRequest::Watch(request)] if request.from_version == Version::new(7)));
    /// # drop(numbers);
    /// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
    /// ```
    #[track_caller]
    pub fn fail_watch(&self, error: SourceError) {
        self.push_message(Some(Err(error)));
    }

    /// Ends the watch that was [added](Self::answer_watch) last, without an error.
    ///
    /// # Panics
    /// Panics if no watch was added, or if that watch was dropped.
    #[track_caller]
    pub fn close_watch(&self) {
        self.push_message(None);
    }

    /// Returns the requests that the source has received since the last call of this method.
    #[must_use]
    pub fn requests(&self) -> Vec<SourceRequest> {
        std::mem::take(&mut self.script.lock().requests)
    }

    /// Returns the number of watches that were opened and not dropped.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.script.lock().open
    }

    #[track_caller]
    fn push_message(&self, message: Message<V>) {
        let sent = self.change(|script| match script.messages.last_mut() {
            Some((number, messages)) if *number == script.newest => {
                messages.push_back(message);
                true
            }
            _ => false,
        });
        assert!(sent, "there is no watch to send it to");
    }

    fn change<R>(&self, change: impl FnOnce(&mut Script<V>) -> R) -> R {
        let mut script = self.script.lock();
        let result = change(&mut script);
        let waiting = std::mem::take(&mut script.waiting);
        drop(script);
        raise(wake_all(waiting));
        result
    }

    /// Returns the value that `take` finds in the script. If there is none, registers the waker for the next change.
    fn poll<R>(&self, cx: &Context<'_>, mut take: impl FnMut(&mut Script<V>) -> Option<R>) -> Poll<R> {
        // The waker is cloned before the lock is taken. So if the clone is not needed, it is dropped after the lock is released.
        let waker = cx.waker().clone();
        let mut script = self.script.lock();
        match take(&mut script) {
            Some(found) => Poll::Ready(found),
            None => {
                if !script.waiting.iter().any(|waiting| waiting.will_wake(&waker)) {
                    script.waiting.push(waker);
                }
                Poll::Pending
            }
        }
    }
}

impl<V: Send + Sync + 'static> Source for ScriptedSource<V> {
    type Object = V;
    type Watch = ScriptedWatch<V>;

    async fn list(&self, request: ListRequest) -> Result<Page<V>, SourceError> {
        self.script.lock().requests.push(SourceRequest::List(request));
        poll_fn(|cx| self.poll(cx, |script| script.lists.pop_front())).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<ScriptedWatch<V>, SourceError> {
        self.script.lock().requests.push(SourceRequest::Watch(request));
        let number = poll_fn(|cx| self.poll(cx, |script| script.watches.pop_front())).await?;
        self.script.lock().open += 1;
        Ok(ScriptedWatch { source: self.clone(), number })
    }
}

/// A watch of a [`ScriptedSource`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::{ScriptedSource, ScriptedWatch};
/// use flyball_informer_cache::{Source, Version, WatchEvent, WatchRequest, WatchStream};
/// use std::time::Duration;
///
/// let source = ScriptedSource::new();
/// source.answer_watch(Ok(()));
/// source.send(WatchEvent::Added(7));
/// source.close_watch();
///
/// let request = WatchRequest { from_version: Version::ZERO, streaming_list: false, timeout: Duration::MAX };
/// flyball_sync::block_on(async {
///     let mut watch: ScriptedWatch<u32> = source.watch(request).await.unwrap();
///     assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(7)))));
///     assert!(watch.next().await.is_none());
///     drop(watch);
///     assert_eq!(source.open_watches(), 0);
/// });
/// ```
#[derive(Debug)]
pub struct ScriptedWatch<V> {
    source: ScriptedSource<V>,
    number: u64,
}

impl<V: Send + Sync + 'static> WatchStream for ScriptedWatch<V> {
    type Object = V;

    async fn next(&mut self) -> Option<Result<WatchEvent<V>, SourceError>> {
        poll_fn(|cx| {
            self.source.poll(cx, |script| {
                let (_, messages) = script.messages.iter_mut().find(|(number, _)| *number == self.number)?;
                messages.pop_front()
            })
        })
        .await
    }
}

impl<V> Drop for ScriptedWatch<V> {
    fn drop(&mut self) {
        let mut script = self.source.script.lock();
        script.open -= 1;
        let at = script.messages.iter().position(|(number, _)| *number == self.number);
        let left = at.map(|at| script.messages.remove(at));
        drop(script);
        drop(left);
    }
}

impl<V> Clone for ScriptedSource<V> {
    fn clone(&self) -> Self {
        Self { script: self.script.clone() }
    }
}

impl<V> Default for ScriptedSource<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> fmt::Debug for ScriptedSource<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.script.lock();
        let mut debug = f.debug_struct("ScriptedSource");
        debug.field("lists", &script.lists.len()).field("watches", &script.watches.len());
        debug.field("open", &script.open).finish_non_exhaustive()
    }
}
