//! EDGE. What a controller listens to, and which keys come of it.
//!
//! Cancel safety: nothing runs before the controller does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Change, Informer};
use flyball_workqueue::{
    AddError, Added, Key, Order, Priority, Queue, QueueLimiter, SupportsAsync, SupportsDelays,
};

use crate::run::watched_informer::WatchedInformer;
use crate::{Caches, Controller};

/// What it listens to, and which keys come of it.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
{
    /// Adds `key_of(change)` to the queue for every change of the informer's objects, beginning with those it has.
    ///
    /// Every change is mapped, unmerged: when a key of yours depends on what an object said before, it is told of that
    /// state, too. The mapper is called by the informer itself, right after it published the change, so it must be
    /// quick: the informer waits for it.
    ///
    /// A change at which the mapper panics is mapped again, after 100 ms, doubling up to a minute, until it returns; other objects do not
    /// wait for that. Of one object at most 16 such changes are kept, the newest. [`RunReport::callback_panics`](crate::RunReport::callback_panics) counts the
    /// panics, [`RunReport::mapper_failures`](crate::RunReport::mapper_failures) the changes that are left in the end.
    pub fn on<OK, V>(
        self,
        informer: &Informer<OK, V>,
        key_of: impl Fn(&Change<OK, V>) -> K + Send + Sync + 'static,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
    {
        self.on_many(informer, move |change| Some(key_of(change)))
    }

    /// As [`on`](Self::on), for the changes alone that `worth` says yes to; [`predicate`](crate::predicate) has the usual ones.
    ///
    /// A change that is left out here is left out for good: another reason to look at the same key does not bring it back,
    /// but the reconcile reads the newest state anyway. A panic in it is one of the mapper.
    ///
    /// # Examples
    /// ```no_run
    /// # use flyball_controller::{Controller, predicate};
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_controller::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # struct Pod { generation: u64 }
    /// # fn example(pods: Informer<String, Pod>) {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// let controller = Controller::new(queue)
    ///     .on_if(&pods, predicate::changed(|pod: &Pod| pod.generation), |change| change.key().clone());
    /// # }
    /// ```
    pub fn on_if<OK, V>(
        self,
        informer: &Informer<OK, V>,
        worth: impl Fn(&Change<OK, V>) -> bool + Send + Sync + 'static,
        key_of: impl Fn(&Change<OK, V>) -> K + Send + Sync + 'static,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
    {
        self.on_many(informer, move |change| worth(change).then(|| key_of(change)))
    }

    /// Adds all of `keys_of(change)` to the queue for every change of the informer's objects; see [`on`](Self::on).
    pub fn on_many<OK, V, I>(
        mut self,
        informer: &Informer<OK, V>,
        keys_of: impl Fn(&Change<OK, V>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        self.events.push(WatchedInformer::new(informer, keys_of));
        self
    }

    /// As [`on_many`](Self::on_many), with a say in how each key is added: later, debounced, with a priority. What `add` does with the
    /// queue beside adding the key is its own affair; a panic in it is one of the mapper.
    ///
    /// It is asked for the objects an informer begins with, too: see [`Change::is_initial`].
    ///
    /// # Examples
    /// A storm of changes of one pod is one reconcile when there has been none for 100 ms, and one each second while it lasts:
    /// ```no_run
    /// # use flyball_controller::Controller;
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_controller::TokioTimer;
    /// use flyball_workqueue::{DelayMode, Queue};
    /// use std::time::Duration;
    /// # struct Pod;
    /// # fn example(pods: Informer<String, Pod>) {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    ///
    /// let quiet = Duration::from_millis(100);
    /// let mode = DelayMode::Debounce { max_wait: Duration::from_secs(1) };
    /// let controller = Controller::new(queue).on_with(
    ///     &pods,
    ///     |change| Some(change.key().clone()),
    ///     move |queue, _change, key| queue.add_after_with(key, quiet, mode),
    /// );
    /// # }
    /// ```
    pub fn on_with<OK, V, I>(
        mut self,
        informer: &Informer<OK, V>,
        keys_of: impl Fn(&Change<OK, V>) -> I + Send + Sync + 'static,
        add: impl Fn(&Queue<K, O, L, T>, &Change<OK, V>, K) -> Result<Added, AddError<K>> + Send + Sync + 'static,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        let add = move |queue: &_, _: &_, change: &_, key| add(queue, change, key);
        self.events.push(WatchedInformer::adding(informer, keys_of, |key| key, add));
        self
    }

    /// Lets workers start before the informer that was given last has synced. The objects of its first list become keys when they
    /// arrive. By default workers wait for all informers, or their reconciles would see half a world.
    ///
    /// Its reconciles must be able to do without that cache. An informer that ends, synced or not, ends the run all the same.
    ///
    /// # Examples
    /// ```no_run
    /// # use flyball_controller::Controller;
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_workqueue::Queue;
    /// # use flyball_controller::TokioTimer;
    /// # fn example(pods: Informer<u32, u32>, hints: Informer<u32, u32>) {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// let controller = Controller::new(queue)
    ///     .on(&pods, |change| *change.key())
    ///     .on(&hints, |change| *change.object().as_ref())
    ///     .optional();
    /// let health = controller.health();
    /// for cache in health.caches().iter().filter(|cache| !cache.synced) {
    ///     eprintln!("missing: {cache}");
    /// }
    /// # }
    /// ```
    pub fn optional(mut self) -> Self {
        if let Some(events) = self.events.last_mut() {
            events.required = false;
        }
        self
    }

    /// How long the informers that workers wait for may take to sync, from the start of the run. Then it ends as
    /// [`RunError::SyncTimeout`](crate::RunError::SyncTimeout), which names those that are missing, with their last errors.
    /// 2 minutes by default, as with controller-runtime; `Duration::MAX` is no limit.
    ///
    /// What is given to [`wait_for_cache`](Self::wait_for_cache) may take longer.
    pub fn cache_sync_timeout(mut self, limit: Duration) -> Self {
        self.config.settings.cache_sync_timeout = limit;
        self
    }

    /// Workers start only after this, too, beside the informers of this controller: for caches that reconciles read and that
    /// are another controller's to listen to, or for whatever else has to be there.
    ///
    /// When it is an error, the run ends as with an informer that ends too early.
    ///
    /// # Examples
    /// ```no_run
    /// # use flyball_controller::{Action, Controller};
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_workqueue::Queue;
    /// # use flyball_controller::TokioTimer;
    /// # async fn example(pods: Informer<u32, u32>, nodes: Informer<u32, u32>) {
    /// # let (queue, other) = (Queue::builder().timer(TokioTimer::current()).build(), Queue::builder().timer(TokioTimer::current()).build());
    /// let of_nodes = Controller::new(queue).on(&nodes, |change| *change.key());
    /// // Its reconciles look at nodes, too.
    /// let caches = of_nodes.caches();
    /// let of_pods = Controller::new(other)
    ///     .on(&pods, |change| *change.key())
    ///     .wait_for_cache(async move { caches.synced().await });
    /// # let _ = of_pods.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await;
    /// # }
    /// ```
    pub fn wait_for_cache<E>(mut self, ready: impl Future<Output = Result<(), E>> + Send + 'static) -> Self {
        self.after.push(Box::pin(async move { ready.await.map_err(drop) }));
        self
    }

    /// Starts workers without waiting until the informers have synced that it listens to. What is given to [`wait_for_cache`](Self::wait_for_cache) is
    /// still awaited: the caches that reconciles read, say.
    ///
    /// The objects of an informer that syncs later become keys then, as any change does.
    pub fn start_before_sync(mut self) -> Self {
        self.config.start_before_sync = true;
        self
    }

    /// The caches that this controller listens to, as far as they were given to it: for another one to run
    /// [after](Self::wait_for_cache) them.
    pub fn caches(&self) -> Caches {
        Caches(self.events.iter().map(|events| events.synced.clone()).collect())
    }

    /// Works on these keys only, and leaves all others to other replicas: no change becomes one of those, and if one is
    /// added to the queue by somebody else, it is taken out and [counted](crate::RunReport::filtered_keys), no more.
    ///
    /// The caches still hold everything. It is called for every key of a change, by the informer; a panic is one of the
    /// mapper.
    ///
    /// # Examples
    /// One of three replicas, each with its namespaces:
    /// ```
    /// # use flyball_controller::{Action, Controller, Shard};
    /// # use flyball_workqueue::Queue;
    /// # use flyball_controller::TokioTimer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// # for namespace in ["a", "b", "c", "d", "e", "f"] { queue.add((namespace, "pod"))?; }
    /// # queue.shut_down();
    /// # let index = 0;
    /// let shard = Shard::new(index, 3)?;
    /// let report = Controller::new(queue)
    ///     .filter_keys(move |(namespace, _name)| shard.contains(namespace))
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await?;
    /// assert_eq!(report.reconciles + report.filtered_keys, 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn filter_keys(mut self, mine: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        self.config.filter_key = Arc::new(mine);
        self
    }
}

/// For a queue of [priorities](Priority).
impl<K, L, T> Controller<K, Priority, L, T>
where
    K: Key,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
{
    /// With which priority [`on`](Self::on) and [`on_many`](Self::on_many) add keys for the objects an informer begins with, be its first
    /// list published before the controller runs or after: 0 unless set here, as for every other change.
    ///
    /// Below 0, objects that change after a start go before those of the first list. The latter run all the same, by their
    /// [share](flyball_workqueue::Priority::share) of the hand-outs.
    pub fn initial_priority(mut self, priority: i8) -> Self {
        self.initial =
            Arc::new(move |queue: &Queue<K, Priority, L, T>, key| queue.with_priority(priority).add(key));
        self
    }

    /// As [`on_many`](Self::on_many), with a priority for each key.
    pub fn on_many_at<OK, V, I>(
        mut self,
        informer: &Informer<OK, V>,
        keys_of: impl Fn(&Change<OK, V>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        I: IntoIterator<Item = (K, i8)> + 'static,
    {
        self.events.push(WatchedInformer::adding(
            informer,
            keys_of,
            |(key, _)| key,
            |queue, _, _, (key, priority)| queue.with_priority(priority).add(key),
        ));
        self
    }
}
