//! SHELL. Shared informers: the first request for a name starts an informer, and dropping the informer's last handle stops it.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `running` | a slot for each name: its informer, and the number of its handles |
//! | `stopping` | the `stopped` signals of informers that are shutting down; each addition removes those that are already set |
//! | `closed` | set once, never unset |
//!
//! A signal in `stopping` does not keep its informer alive. Builders, the function `run`, wakers and destructors run while the lock is not held. The
//! status of an informer, and whether it has ended, may be read under the lock, because the locks that guard them come last in the lock order.
//!
//! # Invariants
//! 1. Each slot has at least one user. No slot number is used twice.
//! 2. `running` has at most one informer for each combination of a name, a key type and an object type. If that informer is shutting down, the next
//!    request replaces it.
//! 3. Once `closed` is set, there are no slots.
//!
//! Cancel safety: the futures of the set only wait for signals of its informers, so dropping one loses nothing.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::{DropContained, caught};

use crate::signal::synced::Synced;
use flyball_sync::Timer;

use crate::{Informer, InformerBuilder, InformerStatus, ReflectorConfig, Source};

mod error;
mod member;
mod shared;

pub use self::error::{ConfigDifference, InformerStartError, NotSynced};
use self::member::Member;
pub use self::shared::SharedInformer;

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A set of informers, each of which has a name and is shared by all its users. This type is a handle: its clones refer to the same set.
///
/// A name is any text, for example the kind of the objects and the selector of the source: `"pods app=web"`.
///
/// The first request for a name starts an informer. Later requests share this informer and its current state; a request with a different
/// configuration fails. The informer is shut down when its last [`SharedInformer`] is dropped, or when you call [`stop`](Self::stop). If the informer
/// has ended, or any handle has shut it down, the next request for the name starts a new informer.
///
/// # Examples
/// ```
/// # use flyball_informer_cache::{testing::ScriptedSource, *};
/// const NUMBERS: Schema<u64, u64> = Schema::new(|number| *number, |_| Version::ZERO);
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let (clock, source) = (ManualClock::new(), ScriptedSource::new());
/// # source.answer_list(Ok(Page { items: vec![1, 2], version: Version::new(1), continuation: None }));
/// # source.answer_watch(Ok(()));
/// // With the feature `tokio`: `InformerSet::on_tokio()`, and a `TokioTimer` for each.
/// let set = InformerSet::new(|run| drop(tokio::spawn(run)));
/// let builder = || Informer::builder(NUMBERS, source.clone()).timer(clock.timer());
/// let mine = set.get_or_start("numbers", builder())?;
/// let yours = set.get_or_start("numbers", builder())?; // the same informer: nothing is built
///
/// let other = set.get_or_start("numbers", builder().streaming_lists());
/// assert_eq!(other.unwrap_err().to_string(), "the informer in use is configured differently: streaming_lists");
/// set.synced().await?;
/// assert_eq!(yours.snapshot().len(), 2);
///
/// drop(mine);
/// assert_eq!(set.statuses().len(), 1);
/// drop(yours); // the last handle: the informer is shut down
/// set.stopped().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct InformerSet {
    inner: Arc<Inner>,
}

struct Inner {
    run: DropContained<Box<dyn Fn(Run) + Send + Sync>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Id, Slot>,
    stopping: Vec<Arc<Synced>>,
    /// The number of the next slot.
    next: u64,
    closed: bool,
}

/// A name, and the types of its informer's keys and objects.
type Id = (Arc<str>, TypeId);

type Named = (Arc<str>, Arc<dyn Member>);

struct Slot {
    number: u64,
    member: Arc<dyn Member>,
    users: usize,
    config: SharedConfig,
}

/// The settings that must be the same for all users of an informer, except the indexes.
#[derive(Clone, Copy)]
struct SharedConfig {
    reflector: ReflectorConfig,
    transforms: bool,
}

impl SharedConfig {
    fn difference(&self, other: &Self) -> Option<ConfigDifference> {
        let transform = (self.transforms != other.transforms).then_some(ConfigDifference::Transform);
        transform.or_else(|| self.reflector.difference(&other.reflector).map(ConfigDifference::Reflector))
    }
}

impl InformerSet {
    /// Creates an empty set. `run` is called with the run future of each new informer. It must pass the future to an executor, which polls it to
    /// completion; dropping the future stops the informer.
    pub fn new(run: impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync + 'static) -> Self {
        let run: Box<dyn Fn(Run) + Send + Sync> = Box::new(run);
        let (run, state) = (DropContained::new(run), Mutex::new(State::default()));
        Self { inner: Arc::new(Inner { run, state }) }
    }

    /// Creates a set whose informers run as tasks of the current tokio runtime.
    ///
    /// # Panics
    /// Panics if called outside a tokio runtime.
    #[cfg(feature = "tokio")]
    #[must_use]
    #[track_caller]
    pub fn on_tokio() -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self::new(move |run| drop(runtime.spawn(run)))
    }

    /// Returns the informer with this name and these types. If there is none, or if it has ended or is shutting down, builds and starts a new one.
    ///
    /// An existing informer is returned only if it has every index of the builder (ordered and unique, if the builder's index is), the same
    /// [`ReflectorConfig`], and if either both or neither have a transformation; otherwise the result is an error. The functions of schemas, indexes and transformations are not compared. If an
    /// existing informer is returned, the builder's source, timer and callbacks are dropped.
    ///
    /// The informer is built without holding a lock, so two concurrent first requests may both build an informer. Both calls then use the informer
    /// that was registered first; the other informer never runs.
    ///
    /// # Errors
    /// Returns an error if the informer cannot be built, if the existing informer is configured differently, or if the set was [shut
    /// down](Self::shut_down).
    ///
    /// # Panics
    /// Panics only if a callback of the builder or the function passed to [`new`](Self::new) panics. After such a panic, either the set is unchanged,
    /// or the new informer has ended.
    pub fn get_or_start<K, V, S, T>(
        &self,
        name: impl Into<Arc<str>>,
        builder: InformerBuilder<K, V, S, T>,
    ) -> Result<SharedInformer<K, V>, InformerStartError>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: Source<Object = V>,
        T: Timer,
    {
        let id = (name.into(), TypeId::of::<(K, V)>());
        let config = SharedConfig { reflector: builder.config(), transforms: builder.transforms() };
        if let Some((informer, known)) = self.join(&id)? {
            let index = || builder.index_missing_in(informer.store()).map(ConfigDifference::Index);
            return match known.difference(&config).or_else(index) {
                None => Ok(informer),
                Some(difference) => Err(InformerStartError::ConfigMismatch(difference)),
            };
        }
        let (informer, run) = builder.build().map_err(InformerStartError::Build)?;
        let built = informer.store().clone();
        let (shared, is_new) = self.enter(id, informer, config)?;
        if is_new {
            (self.inner.run)(Box::pin(run));
        } else if let Some(index) = shared.store().index_lacking(&built) {
            return Err(InformerStartError::ConfigMismatch(ConfigDifference::Index(index)));
        }
        Ok(shared)
    }

    /// If there is an informer in use, adds a user to it, and returns a new handle and the informer's configuration.
    #[expect(clippy::type_complexity, reason = "an informer and its configuration, if there is one")]
    fn join<K, V>(&self, id: &Id) -> Result<Option<(SharedInformer<K, V>, SharedConfig)>, InformerStartError>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut state = self.inner.state.lock();
        if state.closed {
            return Err(InformerStartError::ShutDown);
        }
        let slot = state.running.get_mut(id).filter(|slot| !slot.member.is_stopping());
        Ok(slot.and_then(|slot| Some((SharedInformer::of(self, id, slot)?, slot.config))))
    }

    /// Registers `informer` with its first user, and returns `true` with the handle. If a different informer was registered in the meantime, adds a
    /// user to that one instead, and returns `false`.
    fn enter<K, V>(
        &self,
        id: Id,
        informer: Informer<K, V>,
        config: SharedConfig,
    ) -> Result<(SharedInformer<K, V>, bool), InformerStartError>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        // Dropping an informer may drop the user's objects, which must not happen under the lock. So both variables are declared before the lock
        // guard, and are dropped after it.
        let (member, previous): (Arc<dyn Member>, _);
        member = Arc::new(informer.clone());
        let mut state = self.inner.state.lock();
        if state.closed {
            return Err(InformerStartError::ShutDown);
        }
        // Checked again, because another request may have registered an informer while this one was built.
        let there = state.running.get_mut(&id).filter(|slot| !slot.member.is_stopping());
        if let Some(slot) = there {
            if let Some(difference) = slot.config.difference(&config) {
                return Err(InformerStartError::ConfigMismatch(difference));
            }
            if let Some(shared) = SharedInformer::of(self, &id, slot) {
                return Ok((shared, false));
            }
        }
        let number = state.next;
        state.next += 1;
        previous =
            state.running.insert(id.clone(), Slot { number, member: member.clone(), users: 1, config });
        state.track_stopping(previous.iter());
        drop(state);
        drop(previous);
        Ok((SharedInformer::new(self, id, number, informer), true))
    }

    /// Shuts down all informers with this name, even if they have users. The next request for the name starts a new informer.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Informer, InformerSet, ManualClock, Schema, SharedInformer, Version, testing::TestServer};
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// let builder = || Informer::builder(NUMBERS, server.clone()).timer(ManualClock::new().timer());
    /// let set = InformerSet::new(|run| drop(std::thread::spawn(|| flyball_sync::block_on(run))));
    /// let numbers: SharedInformer<u32, u32> = set.get_or_start("numbers", builder())?;
    /// set.stop("numbers"); // although it is in use
    /// flyball_sync::block_on(set.stopped());
    /// assert!(numbers.is_stopped());
    /// let again = set.get_or_start("numbers", builder())?; // a new informer
    /// flyball_sync::block_on(again.synced())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self, name: impl Into<Arc<str>>) {
        let name = name.into();
        self.leave(false, |id| id.0 == name);
    }

    /// Shuts down all informers, and rejects later requests. It does not wait until the informers have ended; use [`stopped`](Self::stopped) for
    /// that. Idempotent.
    pub fn shut_down(&self) {
        self.leave(true, |_| true);
    }

    /// Shuts down the informers for which `which` returns `true`. If `close` is true, the set rejects all later requests.
    fn leave(&self, close: bool, which: impl Fn(&Id) -> bool) {
        let mut state = self.inner.state.lock();
        state.closed |= close;
        let (stopping, staying): (BTreeMap<_, _>, _) =
            std::mem::take(&mut state.running).into_iter().partition(|(id, _)| which(id));
        state.running = staying;
        state.track_stopping(stopping.values());
        drop(state);
        stopping.values().for_each(Slot::shut_down);
    }

    /// Removes a user from an informer. If it was the last user, shuts the informer down.
    fn release(&self, id: &Id, number: u64) {
        let mut state = self.inner.state.lock();
        let Some(slot) = state.running.get_mut(id).filter(|slot| slot.number == number) else { return };
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let slot = state.running.remove(id);
        state.track_stopping(slot.iter());
        drop(state);
        slot.iter().for_each(Slot::shut_down);
    }

    /// Adds a user to an informer. The caller already has a handle to it.
    fn retain(&self, id: &Id, number: u64) {
        let mut state = self.inner.state.lock();
        if let Some(slot) = state.running.get_mut(id).filter(|slot| slot.number == number) {
            slot.users += 1;
        }
    }

    /// Waits until every informer that is now in the set has published its first list. Returns immediately if the set is empty.
    ///
    /// # Errors
    /// Returns an error with the names of the informers that ended before their first list.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub async fn synced(&self) -> Result<(), NotSynced> {
        let members = self.running();
        let mut waits: Vec<_> = members.iter().map(|(name, member)| (name, member.synced())).collect();
        poll_fn(|cx| {
            let mut ended = Vec::new();
            waits.retain_mut(|(name, wait)| match wait.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(_)) => {
                    ended.push(name.clone());
                    false
                }
            });
            match (ended.is_empty(), waits.is_empty()) {
                (false, _) => Poll::Ready(Err(NotSynced { ended })),
                (true, true) => Poll::Ready(Ok(())),
                (true, false) => Poll::Pending,
            }
        })
        .await
    }

    /// Waits until every informer that is now in the set has ended, including informers that are shutting down. If you have called
    /// [`shut_down`](Self::shut_down) before, no informer of the set runs after this returns.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub async fn stopped(&self) {
        let ends: Vec<_> = {
            let state = self.inner.state.lock();
            let running = state.running.values().map(|slot| slot.member.ended_signal());
            running.chain(state.stopping.iter().cloned()).collect()
        };
        for end in ends {
            // `wait` returns an error only for a signal that will never be set, but this signal is always set when the informer ends.
            let _ = end.wait().await;
        }
    }

    /// Returns the name and the status of each informer in use.
    #[must_use]
    pub fn statuses(&self) -> Vec<(Arc<str>, InformerStatus)> {
        self.running().into_iter().map(|(name, member)| (name, member.status())).collect()
    }

    fn running(&self) -> Vec<Named> {
        let state = self.inner.state.lock();
        state.running.iter().map(|((name, _), slot)| (name.clone(), slot.member.clone())).collect()
    }
}

impl Slot {
    /// Shuts the informer down. If a waker panics, the panic is caught, because the caller may be a destructor, or may have to shut down further
    /// informers.
    fn shut_down(&self) {
        // The panic hook has already reported the panic.
        let _ = caught(|| self.member.shut_down());
    }
}

impl State {
    /// Removes the signals of ended informers from the field `stopping`, and adds those of the informers in the argument, which are shutting down.
    fn track_stopping<'a>(&mut self, stopping: impl Iterator<Item = &'a Slot>) {
        self.stopping.retain(|end| !end.is_set());
        self.stopping.extend(stopping.map(|slot| slot.member.ended_signal()));
    }
}

impl fmt::Debug for InformerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.running().into_iter().map(|(name, _)| name).collect();
        f.debug_struct("InformerSet").field("running", &names).finish_non_exhaustive()
    }
}
