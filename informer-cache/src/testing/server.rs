//! EDGE. An in-memory server that can be listed and watched, with the faults of real servers.
//!
//! Cancel safety: a request that is dropped has no effect. A watch that is dropped is removed from the server.
//!
//! | guarded by `state` | |
//! |---|---|
//! | objects, history, faults, watches | a call that changes them wakes all waiters, outside the lock |
//!
//! The following functions run under the lock and must not call the server: `stamp`, the closures of `update` and `set_faults`, and `Clone`, `Drop`
//! and `Ord` of objects and keys.

mod faults;
mod state;
mod watch;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::raise;
use flyball_sync::waiting::wake_all;
use flyball_sync::{Clock, ManualClock, Timer};

pub use self::faults::Faults;
use self::state::{Disturbance, Latency, State};
pub use self::watch::TestServerWatch;
use crate::{ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, Version, WatchRequest};

/// An in-memory server that can be listed and watched. This type is a handle: clones share the server.
///
/// The server stores objects and the history of their changes, returns lists in pages, and delivers changes to watches. It drops its history when it
/// is [compacted](Self::compact), and fails on demand. A test changes the objects of the server, causes faults, and checks the result: once the
/// [faults are cleared](Self::clear_faults), an informer must converge to [`objects`](Self::objects), whatever failed before.
///
/// The server assigns a version to every object that is [put](Self::put). If there is no object under the key, it also assigns a new id. The function
/// `stamp` writes both into the object. Versions begin at 1, the version of the empty server.
///
/// # Examples
/// A watch fails, and the object changes in such a way that the informer receives the change only with a new list:
/// ```
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{Informer, Schema, SourceErrorKind, Version};
/// use flyball_sync::ManualClock;
/// use std::pin::pin;
/// use std::task::{Context, Waker};
/// use std::time::Duration;
///
/// #[derive(Clone)]
/// struct Pod { name: &'static str, phase: &'static str, uid: u64, version: Version }
///
/// const PODS: Schema<&str, Pod> = Schema::new(|pod: &Pod| pod.name, |pod| pod.version)
///     .with_identity(|a, b| a.uid == b.uid);
///
/// fn pod(name: &'static str, phase: &'static str) -> Pod {
///     Pod { name, phase, uid: 0, version: Version::ZERO }
/// }
///
/// let server = TestServer::new(PODS, |pod, uid, version| (pod.uid, pod.version) = (uid, version));
/// server.put(pod("a", "Pending"));
///
/// let clock = ManualClock::new();
/// let (pods, run) = Informer::builder(PODS, server.clone()).timer(clock.timer()).build()?;
/// let mut run = pin!(run);
/// let mut turn = || assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
/// turn();
/// assert_eq!(pods.store().get(&"a").unwrap().phase, "Pending");
///
/// // The watch fails. Before the next watch, the object changes and the server drops its history.
/// server.break_watches(SourceErrorKind::Other);
/// turn();
/// server.put(pod("a", "Running"));
/// server.compact();
/// clock.advance(Duration::from_secs(60));
/// turn();
/// assert_eq!(pods.store().get(&"a").unwrap().phase, "Running");
/// assert_eq!(pods.status().relists, 1);
/// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
/// ```
pub struct TestServer<K, V> {
    schema: Schema<K, V>,
    stamp: fn(&mut V, u64, Version),
    state: Arc<Mutex<State<K, V>>>,
}

impl<K: Ord + Clone, V: Clone> TestServer<K, V> {
    /// Creates a server without objects, at version 1.
    ///
    /// The schema computes the keys. `stamp(object, id, version)` writes the id and the version into an object;
    /// it may ignore a value for which the object has no field.
    #[must_use]
    pub fn new(schema: Schema<K, V>, stamp: fn(&mut V, u64, Version)) -> Self {
        Self { schema, stamp, state: Arc::new(Mutex::new(State::new())) }
    }

    /// Stores the object under its key, as a new object or as an update. Returns the version of the change.
    pub fn put(&self, object: V) -> Version {
        let key = self.schema.key(&object);
        self.change(|state| state.put(key, object, self.stamp))
    }

    /// Changes the object under `key`, if there is one. Returns the version of the change. `change` must not change the key.
    pub fn update(&self, key: &K, change: impl FnOnce(&mut V)) -> Option<Version> {
        self.change(|state| {
            let mut object = state.objects.get(key)?.object.clone();
            change(&mut object);
            Some(state.put(key.clone(), object, self.stamp))
        })
    }

    /// Deletes the object under `key`, if there is one. Returns the version of the change.
    pub fn delete(&self, key: &K) -> Option<Version> {
        self.change(|state| state.delete(key, self.stamp))
    }

    /// Deletes the object under the key of `object`, and creates `object` with a new id, in a single change. So the two events have the same version,
    /// which the method returns, and no list returns the state between them.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Schema, Version};
    ///
    /// #[derive(Clone)]
    /// struct Pod { name: &'static str, uid: u64, ready: bool }
    ///
    /// let schema = Schema::new(|pod: &Pod| pod.name, |_| Version::ZERO);
    /// let server = TestServer::new(schema, |pod, uid, _| pod.uid = uid);
    /// let pod = || Pod { name: "a", uid: 0, ready: false };
    /// server.put(pod());
    /// let first = server.get(&"a").unwrap();
    ///
    /// server.update(&"a", |pod| pod.ready = true);
    /// let updated = server.get(&"a").unwrap();
    /// assert!(updated.ready && updated.uid == first.uid);
    ///
    /// server.recreate(pod());
    /// assert_ne!(server.get(&"a").unwrap().uid, first.uid);
    /// ```
    pub fn recreate(&self, object: V) -> Version {
        let key = self.schema.key(&object);
        self.change(|state| state.recreate(key, object, self.stamp))
    }

    /// Returns the object under `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        Some(self.state.lock().objects.get(key)?.object.clone())
    }

    /// Returns the current objects, by key.
    #[must_use]
    pub fn objects(&self) -> Vec<V> {
        self.state.lock().objects.values().map(|stored| stored.object.clone()).collect()
    }

    /// Returns the version of the last change.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::new(self.state.lock().version)
    }

    /// Returns the number of watches that were opened and not dropped.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.state.lock().watches.len()
    }

    /// Makes every open watch deliver a bookmark after all events so far.
    pub fn send_bookmarks(&self) {
        self.change(State::bookmark);
    }

    /// Drops the history. All open watches that have not delivered the whole history expire. So do lists whose last page was not requested yet, and
    /// later watch requests from versions before this call.
    pub fn compact(&self) {
        self.change(State::compact);
    }

    /// Caches the current state, like the watch cache of a real API server. Until the next call of this method, list requests receive the cached
    /// state if they accept a state that is as old as this one.
    pub fn cache_state(&self) {
        self.change(|state| state.cached = Some((state.version, state.objects.clone())));
    }

    /// Restores the [cached](Self::cache_state) state, as if the server were restored from a backup. All watches end, and no watch can resume from a
    /// version in the lost history. The next versions are above the highest version that was ever assigned. Does nothing if no state is cached.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Schema, Version};
    ///
    /// let server = TestServer::new(Schema::new(|n: &u64| *n, |_| Version::ZERO), |_, _, _| {});
    /// server.put(1);
    /// server.cache_state(); // the backup
    /// let lost = server.put(2);
    /// server.restore_cached();
    /// assert_eq!(server.objects(), [1]);
    /// assert!(server.put(3) > lost);
    /// ```
    pub fn restore_cached(&self) {
        self.change(State::restore);
    }

    /// Makes the next list request fail, even if it requests a further page of a list. If this method is called several times, that many requests
    /// fail.
    pub fn fail_list(&self, kind: SourceErrorKind) {
        self.change(|state| state.failing_lists.push_back(kind));
    }

    /// Makes the next watch request fail. If this method is called several times, that many requests fail.
    pub fn fail_watch(&self, kind: SourceErrorKind) {
        self.change(|state| state.failing_watches.push_back(kind));
    }

    /// Fails every open watch.
    pub fn break_watches(&self, kind: SourceErrorKind) {
        self.change(|state| state.disturb(Disturbance::Fail(kind)));
    }

    /// Ends every open watch, without an error, after it has delivered all events so far.
    pub fn close_watches(&self) {
        self.change(State::close);
    }

    /// Makes every open watch deliver its last three events again.
    pub fn repeat_events(&self) {
        self.change(|state| state.disturb(Disturbance::Repeat));
    }

    /// Changes the lasting faults.
    ///
    /// # Examples
    /// ```
    /// # use flyball_informer_cache::{Schema, Version, testing::TestServer};
    /// # let server = TestServer::new(Schema::new(|n: &u64| *n, |_| Version::ZERO), |_, _, _| {});
    /// server.set_faults(|faults| faults.unresponsive = true);
    /// ```
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        self.change(|state| change(&mut state.faults));
    }

    /// Delays every response by `latency`, and delivers every event `latency` after its change. The time is measured with `clock`. By default, there
    /// is no delay.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Informer, ManualClock, Schema, Version};
    /// use std::{pin::pin, task::{Context, Waker}, time::Duration};
    ///
    /// const NUMBERS: Schema<u64, u64> = Schema::new(|n| *n, |_| Version::ZERO);
    /// let (clock, server) = (ManualClock::new(), TestServer::new(NUMBERS, |_, _, _| {}));
    /// server.set_latency(&clock, Duration::from_millis(20));
    ///
    /// let (numbers, run) = Informer::builder(NUMBERS, server).timer(clock.timer()).build()?;
    /// let mut run = pin!(run);
    /// let mut turn = || assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// turn();
    /// assert!(!numbers.is_synced());
    /// clock.advance(Duration::from_millis(20));
    /// turn();
    /// assert!(numbers.is_synced());
    /// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
    /// ```
    pub fn set_latency(&self, clock: &ManualClock, latency: Duration) {
        self.change(|state| state.latency = Some(Latency { clock: clock.clone(), latency }));
    }

    /// Removes all faults. This does not restore a history that was dropped, and does not change the [latency](Self::set_latency).
    pub fn clear_faults(&self) {
        self.change(State::clear_faults);
    }

    fn change<R>(&self, change: impl FnOnce(&mut State<K, V>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        raise(wake_all(wakers));
        result
    }

    /// Waits for the latency, and then until the server is responsive. Then answers the request.
    async fn answer<R>(
        &self,
        mut ask: impl FnMut(&mut State<K, V>) -> Result<R, SourceErrorKind>,
    ) -> Result<R, SourceError> {
        let latency = self.state.lock().latency.clone();
        if let Some(Latency { clock, latency }) = latency {
            let timer = clock.timer();
            let due = timer.now() + latency;
            poll_fn(|cx| {
                if timer.now() >= due {
                    return Poll::Ready(());
                }
                timer.wake_at(due, cx.waker());
                Poll::Pending
            })
            .await;
        }
        poll_fn(|cx| {
            self.poll(cx, |state| match state.faults.unresponsive {
                true => None,
                false => Some(ask(state).map_err(Into::into)),
            })
        })
        .await
    }

    /// Returns the value that `take` finds in the state. If there is none, registers the waker for the next change.
    fn poll<R>(&self, cx: &Context<'_>, take: impl FnOnce(&mut State<K, V>) -> Option<R>) -> Poll<R> {
        // The waker is cloned before the lock is taken. So if the clone is not needed, it is dropped after the lock is released.
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        match take(&mut state) {
            Some(found) => Poll::Ready(found),
            None => {
                if !state.wakers.iter().any(|waiting| waiting.will_wake(&waker)) {
                    state.wakers.push(waker);
                }
                Poll::Pending
            }
        }
    }
}

impl<K, V> Source for TestServer<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    type Object = V;
    type Watch = TestServerWatch<K, V>;

    async fn list(&self, request: ListRequest) -> Result<Page<V>, SourceError> {
        self.answer(|state| state.list(&request)).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<TestServerWatch<K, V>, SourceError> {
        let place = self.answer(|state| state.watch(&request)).await?;
        Ok(TestServerWatch::new(self.clone(), place))
    }
}

impl<K, V> Clone for TestServer<K, V> {
    fn clone(&self) -> Self {
        Self { schema: self.schema, stamp: self.stamp, state: self.state.clone() }
    }
}

impl<K, V> fmt::Debug for TestServer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let mut debug = f.debug_struct("TestServer");
        debug.field("version", &state.version).field("objects", &state.objects.len());
        debug.field("watches", &state.watches.len()).field("faults", &state.faults).finish_non_exhaustive()
    }
}
