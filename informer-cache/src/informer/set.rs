//! SHELL. Shared informers: the first request starts an informer, the drop of its last handle stops it.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `running` | a slot for each name: its informer, and the number of its handles |
//! | `leaving` | the `stopped` signals of informers that are shutting down; a later shutdown removes those that are set. They keep nothing of an informer |
//! | `closed` | set once, never unset |
//!
//! Builders, the spawn function, wakers and destructors run without the lock. An informer's status, and whether it has ended, may be read under it:
//! those locks are the last in order.
//!
//! # Invariants
//! 1. A slot has at least one user, and no number is used twice.
//! 2. Of one name and types, at most one informer is in `running`. The next request replaces an informer that is shutting down.
//! 3. Once closed, there is no slot.
//!
//! Cancel safety: waits are of informers, and lose nothing when dropped.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::caught;

use crate::signal::synced::Synced;
use flyball_sync::Timer;

use crate::{Informer, InformerBuilder, InformerStatus, ReflectorConfig, Source};

mod error;
mod member;
mod name;
mod shared;

pub use self::error::{ConfigDifference, InformerStartError, NotSynced};
use self::member::Member;
pub use self::name::InformerName;
pub use self::shared::SharedInformer;

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Informers by name, shared by all who use one. A handle: clones share them.
///
/// The first request for a name starts its informer; later ones join it, at the version it is at, unless they configure it differently. When the last
/// [`SharedInformer`] is dropped, or by [`stop`](Self::stop), the informer is shut down. The next request for a name
/// replaces an informer that has ended or was shut down, by any handle.
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
/// drop(yours); // the last one: it is shut down
/// set.stopped().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct InformerSet {
    inner: Arc<Inner>,
}

struct Inner {
    run: Box<dyn Fn(Run) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Id, Slot>,
    leaving: Vec<Arc<Synced>>,
    /// The number of the next slot.
    next: u64,
    closed: bool,
}

/// A name, and the types of its informer's keys and objects.
type Id = (InformerName, TypeId);

type Named = (InformerName, Arc<dyn Member>);

struct Slot {
    number: u64,
    member: Arc<dyn Member>,
    users: usize,
    config: SharedConfig,
}

/// The part of a configuration that users of one informer have to agree on, besides its indexes.
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
    /// No informers yet; `run` is given the run future of each that starts, and has it polled until it is over. To drop one stops that informer.
    pub fn new(run: impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync + 'static) -> Self {
        Self { inner: Arc::new(Inner { run: Box::new(run), state: Mutex::new(State::default()) }) }
    }

    /// One whose informers run as tasks of the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[cfg(feature = "tokio")]
    #[must_use]
    #[track_caller]
    pub fn on_tokio() -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self::new(move |run| drop(runtime.spawn(run)))
    }

    /// The informer of this name; built and started if there is none of this name and these types, or if it has ended.
    ///
    /// An informer in use is joined if it has every index of the builder, the same [`ReflectorConfig`], and transforms its objects if, and only if, the builder does.
    /// Functions are not compared: neither the schema's, nor those of indexes and transformations. What the builder has besides (its source, timer and callbacks)
    /// is dropped.
    ///
    /// The informer is built without a lock. Where two requests are the first at once, both may build one, and both get the one that was there first; the other
    /// has not run.
    ///
    /// # Errors
    /// When it cannot be built, when the informer in use is configured differently, or when the set was [shut down](Self::shut_down).
    ///
    /// # Panics
    /// Only as a callback of the builder or what runs the informer does; then nothing has changed, or the informer has ended.
    pub fn get_or_start<K, V, S, T>(
        &self,
        name: impl Into<InformerName>,
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

    /// One user more of the informer in use, and its configuration.
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

    /// The first user of this informer; or one more of another that came first.
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
        // Declared before the lock, so dropped after it: what is in a store is the user's.
        let (member, over): (Arc<dyn Member>, _);
        member = Arc::new(informer.clone());
        let mut state = self.inner.state.lock();
        if state.closed {
            return Err(InformerStartError::ShutDown);
        }
        // Looked at again: another may have been quicker while this one was built.
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
        over = state.running.insert(id.clone(), Slot { number, member: member.clone(), users: 1, config });
        state.let_go(over.iter());
        drop(state);
        drop(over);
        Ok((SharedInformer::new(self, id, number, informer), true))
    }

    /// Shuts down the informers of this name, even while they are in use. The next request for the name starts another.
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
    /// let again = set.get_or_start("numbers", builder())?; // another one
    /// again.blocking_synced()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self, name: impl Into<InformerName>) {
        let name = name.into();
        self.leave(false, |id| id.0 == name);
    }

    /// Shuts down all informers and starts no more. Nobody waits here: [`stopped`](Self::stopped) does. Again is the same.
    pub fn shut_down(&self) {
        self.leave(true, |_| true);
    }

    /// Shuts down those that `which` accepts, and if `close`, lets nobody in after them.
    fn leave(&self, close: bool, which: impl Fn(&Id) -> bool) {
        let mut state = self.inner.state.lock();
        state.closed |= close;
        let (leaving, staying): (BTreeMap<_, _>, _) =
            std::mem::take(&mut state.running).into_iter().partition(|(id, _)| which(id));
        state.running = staying;
        state.let_go(leaving.values());
        drop(state);
        leaving.values().for_each(Slot::shut_down);
    }

    /// One user less; the last one shuts the informer down.
    fn release(&self, id: &Id, number: u64) {
        let mut state = self.inner.state.lock();
        let Some(slot) = state.running.get_mut(id).filter(|slot| slot.number == number) else { return };
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let slot = state.running.remove(id);
        state.let_go(slot.iter());
        drop(state);
        slot.iter().for_each(Slot::shut_down);
    }

    /// One user more of an informer that this one still holds.
    fn retain(&self, id: &Id, number: u64) {
        let mut state = self.inner.state.lock();
        if let Some(slot) = state.running.get_mut(id).filter(|slot| slot.number == number) {
            slot.users += 1;
        }
    }

    /// Waits until the first list of every informer there is now is published. No informers: at once.
    ///
    /// # Errors
    /// When one of them ended before; it says which.
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wait and nothing else.
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

    /// Waits until every informer of the set, including those that are shutting down, has ended. After [`shut_down`](Self::shut_down), no informer
    /// runs when it returns.
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wait and nothing else.
    pub async fn stopped(&self) {
        let ends: Vec<_> = {
            let state = self.inner.state.lock();
            let running = state.running.values().map(|slot| slot.member.over());
            running.chain(state.leaving.iter().cloned()).collect()
        };
        for end in ends {
            // Never an error: this signal is always given.
            let _ = end.wait().await;
        }
    }

    /// How each informer fares that somebody uses, by name.
    #[must_use]
    pub fn statuses(&self) -> Vec<(InformerName, InformerStatus)> {
        self.running().into_iter().map(|(name, member)| (name, member.status())).collect()
    }

    fn running(&self) -> Vec<Named> {
        let state = self.inner.state.lock();
        state.running.iter().map(|((name, _), slot)| (name.clone(), slot.member.clone())).collect()
    }
}

impl Slot {
    /// Never panics: a panicking waker concerns one task, and the caller has other informers to stop, or is a destructor.
    fn shut_down(&self) {
        // The panic hook has run; there is no caller to report to.
        let _ = caught(|| self.member.shut_down());
    }
}

impl State {
    /// These leave, and those that are over are forgotten.
    fn let_go<'a>(&mut self, leaving: impl Iterator<Item = &'a Slot>) {
        self.leaving.retain(|end| !end.is_set());
        self.leaving.extend(leaving.map(|slot| slot.member.over()));
    }
}

impl fmt::Debug for InformerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.running().into_iter().map(|(name, _)| name).collect();
        f.debug_struct("InformerSet").field("running", &names).finish_non_exhaustive()
    }
}
