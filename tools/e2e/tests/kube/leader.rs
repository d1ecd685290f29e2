//! Elections on a real API server, in real time, with lease periods of a few seconds. The tests fail if an event happens too early, and tolerate late
//! events.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_kube::{Controller, Monitor};
use flyball_kube_lease::{Election, ElectionBuilder, ElectionOutcome, LeaderStatus, Leadership, LossReason};
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{from_value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::cluster::{Namespace, client, within_limit};

const LEASE: Duration = Duration::from_secs(4);
const RENEW: Duration = Duration::from_millis(2500);
const RETRY: Duration = Duration::from_millis(500);
/// The delay that is tolerated if the server or the machine is under load.
const SLACK: Duration = Duration::from_secs(10);

fn election(client: Client, namespace: &Namespace, identity: &str) -> ElectionBuilder {
    let election = Election::builder(client, &namespace.name, "l", identity);
    election.lease_duration(LEASE).renew_deadline(RENEW).retry_period(RETRY)
}

async fn spec(client: &Client, namespace: &Namespace) -> LeaseSpec {
    Api::<Lease>::namespaced(client.clone(), &namespace.name).get("l").await.unwrap().spec.unwrap()
}

/// The number of candidates that currently do the leader's work.
#[derive(Clone, Default)]
struct ActiveLeaders(Arc<AtomicU32>);

struct Worker(ActiveLeaders);

impl ActiveLeaders {
    fn one(&self) -> Worker {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two leaders work at once");
        Worker(self.clone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns a client whose requests hang once `cut` is set.
async fn client_to_cut(cut: &Arc<AtomicBool>) -> Client {
    let kubeconfig = Kubeconfig::read_from(e2e::shared_kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    ClientBuilder::try_from(config).unwrap().with_layer(&Cut(cut.clone())).build()
}

#[derive(Clone)]
struct Cut(Arc<AtomicBool>);

impl<S> Layer<S> for Cut {
    type Service = CutOff<S>;

    fn layer(&self, inner: S) -> CutOff<S> {
        CutOff { cut: self.0.clone(), inner }
    }
}

struct CutOff<S> {
    cut: Arc<AtomicBool>,
    inner: S,
}

impl<R: 'static, S: Service<R, Future: Send> + 'static> Service<R> for CutOff<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        if self.cut.load(Ordering::SeqCst) { Box::pin(pending()) } else { Box::pin(self.inner.call(request)) }
    }
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_leader_that_is_cut_off_has_ended_before_another_leads() {
    within_limit(async {
        let client = client().await;
        let namespace = Namespace::fresh(&client).await;
        let (cut, at_work) = (Arc::<AtomicBool>::default(), ActiveLeaders::default());
        let mut first = election(client_to_cut(&cut).await, &namespace, "first").build().unwrap();
        let (begins, begun) = oneshot::channel();
        let working = at_work.clone();
        let first = tokio::spawn(async move {
            let work = move |_: Leadership| async move {
                let _worker = working.one();
                let _ = begins.send(());
                pending::<()>().await
            };
            first.run(pending(), work).await
        });
        begun.await.unwrap();
        let mut second = election(client.clone(), &namespace, "second").build().unwrap();
        let status = second.status();
        let (begins, mut begun) = oneshot::channel();
        let working = at_work.clone();
        let second = tokio::spawn(async move {
            let work = move |_: Leadership| async move {
                let _worker = working.one();
                begins.send(Instant::now()).unwrap();
            };
            second.run(pending(), work).await
        });
        // The test waits for longer than the lease duration, so the first candidate must renew the lease in the meantime.
        tokio::select! {
            _ = &mut begun => panic!("the first candidate still leads"),
            () = tokio::time::sleep(LEASE + RETRY) => {}
        }
        assert_eq!(status.leader().as_deref(), Some("first"));

        cut.store(true, Ordering::SeqCst);
        let start = Instant::now();
        assert_eq!(first.await.unwrap(), ElectionOutcome::Lost(LossReason::NotRenewed, None));
        let takes_over = begun.await.unwrap() - start;
        assert!(
            takes_over >= LEASE - RETRY * 2,
            "{takes_over:?}: the lease was taken over while it was valid"
        );
        assert!(takes_over <= LEASE + RETRY * 22 / 10 + SLACK, "{takes_over:?}");
        assert_eq!(second.await.unwrap(), ElectionOutcome::Done(()));
        assert_eq!(spec(&client, &namespace).await.lease_transitions, Some(1));
    })
    .await;
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_lease_is_released_at_the_end_or_expires() {
    within_limit(async {
        let client = client().await;
        let namespace = Namespace::fresh(&client).await;
        assert_eq!(
            election(client.clone(), &namespace, "first")
                .build()
                .unwrap()
                .run(pending(), |_| async { 1 })
                .await,
            ElectionOutcome::Done(1)
        );
        let released = spec(&client, &namespace).await;
        assert_eq!(released.holder_identity.as_deref().unwrap_or_default(), "");
        assert_eq!((released.lease_duration_seconds, released.lease_transitions), (Some(1), Some(0)));

        // The next candidate acquires the lease without waiting for its expiry.
        let start = Instant::now();
        let mut second = election(client.clone(), &namespace, "second").build().unwrap();
        let led = AtomicBool::new(false);
        {
            // As with `kill -9`, nothing is cleaned up: the future is dropped.
            let run = second.run(pending(), |_| async {
                led.store(true, Ordering::SeqCst);
                pending::<()>().await;
            });
            let _ = tokio::time::timeout(LEASE - RETRY, run).await;
        }
        assert!(led.load(Ordering::SeqCst), "the second candidate did not lead within {:?}", start.elapsed());
        let killed = Instant::now();
        let held = spec(&client, &namespace).await;
        assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("second"), Some(1)));
        assert!(held.renew_time > held.acquire_time, "the lease must have been renewed");
        let mut third = election(client.clone(), &namespace, "third").build().unwrap();
        let waited = third.run(pending(), |_| async { killed.elapsed() }).await;
        let ElectionOutcome::Done(waited) = waited else { panic!("{waited:?}") };
        assert!(waited >= LEASE, "{waited:?}: the third candidate must wait for a whole lease");
        assert!(waited <= LEASE + RETRY * 22 / 10 + SLACK, "{waited:?}");
    })
    .await;
}

/// A replica: while it is the leader, its controller labels the ConfigMaps of a namespace with the name of the replica.
struct Replica {
    monitor: Monitor,
    status: LeaderStatus,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<ElectionOutcome<()>>,
}

impl Replica {
    async fn start(namespace: &Namespace, name: &'static str) -> Self {
        let client = client().await;
        let mut election = election(client.clone(), namespace, name).standby(true).build().unwrap();
        let maps = Api::<ConfigMap>::namespaced(client, &namespace.name);
        let controller = Controller::new(maps.clone(), watcher::Config::default().labels("rolled=yes"));
        let (monitor, status) = (controller.monitor(), election.status());
        let (stop, stopped) = oneshot::channel::<()>();
        let reconcile = |map: Arc<ConfigMap>, context: Arc<(Api<ConfigMap>, &'static str)>| async move {
            let (maps, name) = &*context;
            let by = json!({"metadata": {"labels": {"by": name}}});
            maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(by)).await?;
            Ok::<_, kube::Error>(Action::await_change())
        };
        let ended = tokio::spawn(async move {
            election
                .run(async { drop(stopped.await) }, |leadership| {
                    controller
                        .with_leadership(&leadership)
                        .run(reconcile, |_, _, _| Action::requeue(RETRY), Arc::new((maps, name)))
                        .for_each(|_| std::future::ready(()))
                })
                .await
        });
        Self { monitor, status, stop, ended }
    }

    /// Polls the readiness, like a kubelet.
    async fn is_ready(&self) {
        while self.monitor.ready().is_err() {
            tokio::time::sleep(RETRY / 10).await;
        }
    }
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_rolling_update_replaces_the_leader_by_a_replica_that_was_ready_before() {
    within_limit(async {
        let client = client().await;
        let namespace = Namespace::fresh(&client).await;
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace.name);
        let map = json!({"metadata": {"name": "a", "labels": {"rolled": "yes"}}});
        maps.create(&PostParams::default(), &from_value(map).unwrap()).await.unwrap();
        let by = async |name: &str| {
            while maps.get("a").await.unwrap().labels().get("by").map(String::as_str) != Some(name) {
                tokio::time::sleep(RETRY / 10).await;
            }
        };
        let mut old = Replica::start(&namespace, "replica-0").await;
        by("replica-0").await;
        for name in ["replica-1", "replica-2"] {
            let new = Replica::start(&namespace, name).await;
            // The rollout waits for the new replica to be ready; the old replica still leads.
            new.is_ready().await;
            assert!(old.status.is_leader() && !new.status.is_leader());
            // During this sleep, the new replica tries several times to acquire the lease.
            tokio::time::sleep(RETRY * 3).await;
            assert_ne!(maps.get("a").await.unwrap().labels()["by"], name);
            drop(old.stop);
            assert_eq!(old.ended.await.unwrap(), ElectionOutcome::Done(()));
            let stopped = Instant::now();
            by(name).await;
            assert!(stopped.elapsed() < LEASE, "the new leader must not wait for the lease to expire");
            old = new;
        }
        assert_eq!(spec(&client, &namespace).await.lease_transitions, Some(2));
    })
    .await;
}
