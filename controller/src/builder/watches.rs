//! EDGE. The settings for watches: which informers a controller watches, and how changes are mapped to keys.
//!
//! Cancel safety: nothing here runs before the controller runs.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Change, Informer};
use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use crate::run::watched_informer::watched;
use crate::{Controller, ControllerHandle, IntoKeys, WatchOptions};

/// Settings for watches: which informers the controller watches, and how changes are mapped to keys.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Maps every change of the informer's objects to keys, and adds these keys to the queue. `mapper` is also called for the
    /// existing objects, in pieces; a later change of an object may be mapped before them. It returns a key, an [`Option`] of a key, or [several keys](IntoKeys).
    ///
    /// Every change is mapped separately, before changes coalesce. The mapper also receives the state before the change, because its keys may
    /// depend on that state. The informer calls the mapper right after it has published the change, and waits for the mapper, so the mapper must be
    /// quick.
    ///
    /// If the mapper panics, the change is mapped again: the first wait is 100 ms, and each further wait is twice as long as the previous one, up to a
    /// minute. Changes of other objects do not wait for these retries. A change is given up ten minutes after its first attempt. If its object is
    /// deleted by then, a change other than the deletion is mapped once more, and then given up. At most the 16 newest changes of each object, and
    /// 10 000 changes of a watch, are kept for a retry. [`RunReport::callback_panics`](crate::RunReport::callback_panics) counts the panics, and
    /// [`RunReport::mapper_failures`](crate::RunReport::mapper_failures) counts the changes that were never mapped.
    ///
    /// # Examples
    /// ```no_run
    /// # use flyball_controller::{Controller, TokioTimer};
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_workqueue::Queue;
    /// # struct Pod { owner: Option<String> }
    /// # fn example(replicasets: Informer<String, ()>, pods: Informer<String, Pod>) {
    /// # let queue = Queue::<String>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let controller = Controller::new(queue)
    ///     .watches(&replicasets, |change| change.key().clone())
    ///     .watches(&pods, |change| change.object().owner.clone());
    /// # }
    /// ```
    pub fn watches<OK, V, R, M>(
        self,
        informer: &Informer<OK, V>,
        mapper: impl Fn(&Change<OK, V>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        R: IntoKeys<K, M>,
    {
        self.watches_with(informer, mapper, WatchOptions::new())
    }

    /// Like [`watches`](Self::watches), with [options](WatchOptions): a filter, a priority, a resync period, a
    /// function that adds the keys.
    ///
    /// # Examples
    /// ```no_run
    /// # use flyball_controller::{Controller, TokioTimer, WatchOptions, predicate};
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_workqueue::Queue;
    /// # struct Pod { generation: Option<u64>, deleting: bool }
    /// # fn example(pods: Informer<String, Pod>) {
    /// # let queue = Queue::<String>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let specs = WatchOptions::new().filter(predicate::spec(|pod: &Pod| (pod.generation, pod.deleting)));
    /// let controller = Controller::new(queue).watches_with(&pods, |change| change.key().clone(), specs);
    /// let health = controller.health();
    /// for watch in health.watches().iter().filter(|watch| !watch.synced) {
    ///     eprintln!("missing: {watch}");
    /// }
    /// # }
    /// ```
    pub fn watches_with<OK, V, R, M>(
        mut self,
        informer: &Informer<OK, V>,
        mapper: impl Fn(&Change<OK, V>) -> R + Send + Sync + 'static,
        options: WatchOptions<OK, V, K, O, L, T>,
    ) -> Self
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        R: IntoKeys<K, M>,
    {
        self.setup.config.zero_resync_period |= options.resync_every == Some(Duration::ZERO);
        // `add` cannot fail here: it fails only once the controller shuts down, and the controller has not run yet.
        let _ = self.setup.watches.add(watched(informer, mapper, options, &self.setup.sink));
        self
    }

    /// Returns a handle that adds and removes watches, even while the controller runs.
    #[must_use]
    pub fn handle(&self) -> ControllerHandle<K, O, L, T> {
        ControllerHandle { watches: self.setup.watches.clone(), sink: Arc::downgrade(&self.setup.sink) }
    }

    /// Adds a start condition: workers start when `condition` has completed, and all other start conditions are met. Use this for caches that reconciles
    /// read although this controller does not watch them, or for anything else that must happen first.
    ///
    /// The first start condition of every controller is that all caches that it watches have synced;
    /// [`start_before_sync`](crate::ControllerConfig::start_before_sync) removes it. If a condition returns an error, the run ends with
    /// [`RunError::StartFailed`](crate::RunError::StartFailed), which contains the error. One
    /// [timeout](crate::ControllerConfig::start_timeout) applies to all conditions together. All of them are awaited concurrently, from the start of the
    /// run, also [in standby](Self::standby_until).
    ///
    /// # Examples
    /// A cache that is read, but not watched:
    /// ```no_run
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_workqueue::Queue;
    /// # async fn example(pods: Informer<u32, u32>, nodes: Informer<u32, u32>) {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let of_pods = Controller::new(queue)
    ///     .watches(&pods, |change| *change.key())
    ///     // Its reconciles read nodes, too.
    ///     .start_when(async move { nodes.synced().await });
    /// # let _ = of_pods.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await;
    /// # }
    /// ```
    ///
    /// An optional watch is one whose sync is not in the list: here workers wait for `pods` alone. The objects of `hints` become keys when they arrive.
    /// ```no_run
    /// # use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
    /// # use flyball_informer_cache::Informer;
    /// # use flyball_workqueue::Queue;
    /// # async fn example(pods: Informer<u32, u32>, hints: Informer<u32, u32>) {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let of_pods = Controller::new(queue)
    ///     .watches(&pods, |change| *change.key())
    ///     .watches(&hints, |change| *change.key())
    ///     .with_config(ControllerConfig { start_before_sync: true, ..ControllerConfig::default() })
    ///     .start_when(async move { pods.synced().await });
    /// # let _ = of_pods.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await;
    /// # }
    /// ```
    pub fn start_when<E>(mut self, condition: impl Future<Output = Result<(), E>> + Send + 'static) -> Self
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.setup.conditions.push(Box::pin(async move { condition.await.map_err(Into::into) }));
        self
    }

    /// Restricts this controller to the keys for which `mine` returns `true`, and leaves all others to other replicas. Of several filters, all must
    /// return `true`. A change adds only those of its keys that belong to this controller. If other code adds a key of a different replica to the queue, a worker removes and
    /// [counts](crate::RunReport::filtered_keys) that key.
    ///
    /// The caches still hold all objects. The informer calls `mine` for every key of a change; a panic in `mine` is then treated like a panic in the
    /// mapper. A worker calls `mine` immediately before it reconciles a key; with [`run_batches`](Self::run_batches) also when the key joins a batch, in
    /// which it may then wait. So `mine` may depend on a lease: once it returns `false`, no reconcile of the key starts. If this call of `mine`
    /// panics, the panic is counted and the key is reconciled.
    ///
    /// A rejected key is not kept: it comes back with its next change, or with the next [resync](WatchOptions::resync_every). So a replica that owns
    /// keys again after it has rejected them must start a new controller, or resync.
    ///
    /// # Examples
    /// Runs one of three replicas, each of which reconciles the keys of its share of the namespaces:
    /// ```
    /// # use flyball_controller::{Action, Controller, Shard};
    /// # use flyball_workqueue::Queue;
    /// # use flyball_controller::TokioTimer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
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
        let earlier = self.setup.config.filter_key;
        self.setup.config.filter_key = Arc::new(move |key| earlier(key) && mine(key));
        self
    }
}
