//! A cluster in memory: an API server, caches, and a simulated kubelet. Time is virtual.

use std::sync::Arc;
use std::time::Duration;

use example_controllers::program::{self, Clock};
use flyball_informer_cache::{Informer, NamespacedName};
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, Resource};
use kubelet::run_pods;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) pods: Informer<NamespacedName, Pod>,
    pub(crate) sets: Informer<NamespacedName, ReplicaSet>,
    /// Background tasks, which are dropped with the cluster.
    pub(crate) tasks: JoinSet<()>,
}

impl Cluster {
    /// Creates an empty cluster without a kubelet.
    pub(crate) async fn new() -> Self {
        let server = ApiServer::new();
        server.register::<Pod>().register::<ReplicaSet>().register::<Deployment>();
        server.register::<Service>().register::<EndpointSlice>();
        let client = server.client();
        let (pods, sets) = (program::pods(&client), program::replica_sets(&client));
        pods.synced().await.unwrap();
        sets.synced().await.unwrap();
        let start = Instant::now();
        let clock: Clock = Arc::new(move || {
            let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            epoch + SignedDuration::try_from(start.elapsed()).unwrap()
        });
        Self { server, client, clock, pods, sets, tasks: JoinSet::new() }
    }

    /// Starts the simulated kubelet.
    pub(crate) fn run_pods(&mut self) {
        self.tasks.spawn(run_pods(self.client.clone(), self.clock.clone(), self.pods.clone(), None));
    }

    /// Waits until `is_so` returns true, for at most ten minutes of virtual time.
    #[track_caller]
    pub(crate) fn until(&self, mut is_so: impl FnMut(&ApiServer) -> bool) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let poll = async {
                while !is_so(&self.server) {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            if timeout(Duration::from_secs(600), poll).await.is_err() {
                let pods: Vec<_> = self.server.list::<Pod>().into_iter().map(|pod| pod.status).collect();
                panic!(
                    "{place}: not within ten minutes. Sets: {:#?}, pods: {pods:?}",
                    self.server.list::<ReplicaSet>()
                );
            }
        }
    }

    /// Waits for a minute of virtual time.
    pub(crate) async fn rest(&self) {
        sleep(Duration::from_secs(60)).await;
    }

    pub(crate) fn requests<K: Resource<DynamicType: Default>>(&self, verb: Verb) -> usize {
        self.server.requests_matching(&RequestMatcher::verb(verb).resource::<K>()).len()
    }
}
