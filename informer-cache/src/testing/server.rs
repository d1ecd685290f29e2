//! EDGE. An in-memory server that can be listed and watched, with the faults of real servers.
//!
//! Cancel safety: a request that is dropped has no effect; a watch that is dropped is removed.
//!
//! | guarded by `state` | |
//! |---|---|
//! | objects, history, faults, watches | a call that changes them wakes all waiters, outside the lock |
//!
//! The functions of the schema, `stamp`, and `Clone`, `Drop` and `Ord` of objects and keys run under the lock, so they must not call the server.

mod faults;
mod state;
mod watch;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flyball_sync::locks::Mutex;
use flyball_sync::{Clock, ManualClock, Timer};

pub use self::faults::Faults;
use self::state::{Disturbance, Latency, State};
pub use self::watch::TestServerWatch;
use crate::{ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, Version, WatchRequest};

/// An in-memory server that can be listed and watched. This type is a handle: clones share the server.
///
/// The server stores its objects and the history of their changes, pages its lists, delivers changes to its watches, drops its history when it is
/// [compacted](Self::compact), and fails on demand. So a test changes the objects of the server and checks the result: an informer converges to
/// [`objects`](Self::objects) once the [faults are cleared](Self::clear_faults), whatever failed before.
///
/// The server assigns a version to every object that is [put](Self::put), and a new id if the key is new. The function `stamp` writes both into the
/// object. Versions begin at 1, the version of the empty server.
///
/// # Examples
/// Breaks a watch, and makes a change that the informer receives only by a new list:
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

    /// Creates the object, or replaces the object under its key. Returns the version of the change.
    pub fn put(&self, object: V) -> Version {
        let key = self.schema.key(&object);
        self.change(|state| state.put(key, object, self.stamp))
    }

    /// Changes the object under `key`, if there is one. Returns the version of the change. `change` must keep the key.
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

    /// Deletes the object under the key of `object`, and creates `object` with a new id. These are two changes, but no list returns the state in
    /// between. Returns the version of the second change.
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
        self.change(|state| {
            state.delete(&key, self.stamp);
            state.put(key, object, self.stamp)
        })
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

    /// Makes every open watch send a bookmark once it has delivered all events so far.
    pub fn send_bookmarks(&self) {
        self.change(State::bookmark);
    }

    /// Drops the history. Then open watches expire unless they have delivered the whole history. Lists whose last page was not requested yet expire,
    /// too, and so do later watches from an earlier version.
    pub fn compact(&self) {
        self.change(State::compact);
    }

    /// Caches the current state, like the cache in front of a real server. Until the next call, every list that may be as old as this state returns
    /// it.
    pub fn cache_state(&self) {
        self.change(|state| state.cached = Some((state.version, state.objects.clone())));
    }

    /// Restores the [cached](Self::cache_state) state, like a server restored from a backup: versions continue from the
    /// highest one ever assigned, all watches end, and no watch can resume from the lost history. Does nothing without a cached state.
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

    /// Makes the next request for a list or a page fail. After several calls, as many requests fail.
    pub fn fail_list(&self, kind: SourceErrorKind) {
        self.change(|state| state.failing_lists.push_back(kind));
    }

    /// Makes the next watch request fail. After several calls, as many requests fail.
    pub fn fail_watch(&self, kind: SourceErrorKind) {
        self.change(|state| state.failing_watches.push_back(kind));
    }

    /// Fails every open watch.
    pub fn break_watches(&self, kind: SourceErrorKind) {
        self.change(|state| state.disturb(Disturbance::Fail(kind)));
    }

    /// Ends every open watch normally, once it has delivered all events so far.
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

    /// Delays every response and every event by `latency` on `clock`; the delay of an event counts from its change. Zero by default.
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

    /// Removes all faults. A compacted history stays dropped, and the [latency](Self::set_latency) stays.
    pub fn clear_faults(&self) {
        self.change(State::clear_faults);
    }

    fn change<R>(&self, change: impl FnOnce(&mut State<K, V>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Answers a request, after the latency, and not while the server is unresponsive.
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

    /// Completes as soon as `take` finds a value.
    fn poll<R>(&self, cx: &Context<'_>, take: impl FnOnce(&mut State<K, V>) -> Option<R>) -> Poll<R> {
        // The waker is cloned before locking, so that an unneeded clone is dropped after unlocking.
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
