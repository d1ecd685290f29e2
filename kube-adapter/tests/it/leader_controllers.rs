//! Several replicas of a controller, one of which is the leader, on tokio's paused clock. The tests cover rolling updates, and reconciles around the
//! renew deadline.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flyball_kube::{Config, Controller, Monitor, QueueOrder};
use flyball_kube_lease::{Election, ElectionOutcome, LeaderStatus, LossReason};
use flyball_kube_testing::{ApiServer, RequestMatcher};
use futures_util::{FutureExt, StreamExt};
use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::{Body, ClientBuilder};
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use testkit::random::Random;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::{Service, service_fn};

use crate::log_capture::Lines;
use crate::world::{Refused, map};

const SECOND: Duration = Duration::from_secs(1);

fn cluster() -> ApiServer {
    let cluster = ApiServer::new();
    cluster.register::<ConfigMap>().register::<Lease>();
    cluster
}

/// The record of the reconciles of all replicas.
#[derive(Default)]
struct Work {
    at_work: AtomicUsize,
    /// The reconciles, with the replica and the start time of each.
    log: Mutex<Vec<Begun>>,
}

struct Begun {
    replica: String,
    object: String,
    at: Instant,
    /// The time from the sending of the last successful renewal to the start of this reconcile.
    renewed: Duration,
    /// The number of reconciles that were running when this reconcile started.
    others: usize,
}

impl Work {
    fn of(&self, replica: &str) -> Vec<String> {
        let log = self.log.lock();
        log.iter().filter(|begun| begun.replica == replica).map(|begun| begun.object.clone()).collect()
    }

    /// Checks that only one replica works at a time, and that no reconcile starts after the renew deadline of the lease.
    fn check(&self) {
        for Begun { replica, object, at, renewed, others } in &*self.log.lock() {
            assert_eq!(*others, 0, "{replica} began {object} at {at:?}, while another replica worked");
            assert!(
                *renewed < 10 * SECOND,
                "{replica} began {object} at {at:?}, {renewed:?} after its last renewal"
            );
        }
    }
}

/// A replica: a controller that does the work while it leads.
struct Replica {
    monitor: Monitor,
    status: LeaderStatus,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<ElectionOutcome<()>>,
}

impl Replica {
    fn start(cluster: &ApiServer, name: &str, work: &Arc<Work>, takes: Duration) -> Self {
        Self::start_over(cluster.client(), cluster, name, work, takes)
    }

    /// Starts a replica with a separate client for the Lease.
    fn start_over(
        leases: Client,
        cluster: &ApiServer,
        name: &str,
        work: &Arc<Work>,
        takes: Duration,
    ) -> Self {
        let mut election = Election::builder(leases, "ns", "l", name).seed(7).standby(true).build().unwrap();
        let config = Config::default().queue_order(QueueOrder::Fifo).concurrency(1);
        let controller = Controller::new(Api::<ConfigMap>::all(cluster.client()), watcher::Config::default())
            .with_config(config);
        let (monitor, status) = (controller.monitor(), election.status());
        let (stop, stopped) = oneshot::channel::<()>();
        let context = Arc::new((name.to_owned(), work.clone(), status.clone(), takes));
        let ended = tokio::spawn(async move {
            election
                .run(stopped.map(drop), |leadership| {
                    controller
                        .with_leadership(&leadership)
                        .run(reconcile, |_, _, _| Action::await_change(), context)
                        .for_each(|_| std::future::ready(()))
                })
                .await
        });
        Self { monitor, status, stop: Some(stop), ended }
    }

    /// Polls the readiness each second, like a kubelet.
    async fn is_ready_within(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if self.monitor.ready().is_ok() {
                return true;
            }
            sleep(SECOND).await;
        }
        false
    }

    /// Stops the replica as SIGTERM does, and returns the outcome of its election.
    async fn stop(mut self) -> ElectionOutcome<()> {
        self.stop.take();
        self.ended.await.unwrap()
    }
}

type Context = (String, Arc<Work>, LeaderStatus, Duration);

async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Refused> {
    let (replica, work, status, takes) = &*context;
    // A panic here would only make this reconcile fail, so the data is recorded here, and checked at the end of the test.
    let others = work.at_work.fetch_add(1, Ordering::SeqCst);
    let (object, renewed) = (map.name_any(), status.since_last_renewal().unwrap());
    work.log.lock().push(Begun { replica: replica.clone(), object, at: Instant::now(), renewed, others });
    let _done = Done(work);
    sleep(*takes).await;
    Ok(Action::requeue(SECOND / 20))
}

struct Done<'a>(&'a Work);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_replaces_the_leader_by_a_replica_that_was_ready_before() {
    let (cluster, work) = (cluster(), Arc::<Work>::default());
    cluster.put(&map("ns/a"));
    let mut old = Replica::start(&cluster, "replica-0", &work, SECOND / 10);
    assert!(old.is_ready_within(60 * SECOND).await);
    for n in 1..4 {
        let name = format!("replica-{n}");
        let new = Replica::start(&cluster, &name, &work, SECOND / 10);
        // The rollout waits for the new replica to be ready, while the old replica continues to work.
        assert!(new.is_ready_within(60 * SECOND).await, "{name}: {:?}", new.monitor.ready());
        sleep(60 * SECOND).await;
        assert!(old.status.is_leader() && !new.status.is_leader());
        assert_eq!(work.of(&name), Vec::<String>::new(), "a standby must not reconcile");
        assert_eq!(new.monitor.live(SECOND), Ok(()));

        assert_eq!(old.stop().await, ElectionOutcome::Done(()));
        sleep(5 * SECOND).await; // 2.2 retry periods, which is shorter than the lease
        assert!(new.status.is_leader());
        assert!(work.of(&name).contains(&"a".to_owned()));
        assert_eq!(new.monitor.ready(), Ok(()));
        old = new;
    }
    work.check();
}

#[tokio::test(start_paused = true)]
async fn no_reconcile_begins_after_the_renew_deadline() {
    let (cluster, work) = (cluster(), Arc::<Work>::default());
    for n in 0..100 {
        cluster.put(&map(&format!("ns/m{n}")));
    }
    let replica = Replica::start(&cluster, "a", &work, SECOND / 2);
    sleep(5 * SECOND).await;
    cluster.hang(RequestMatcher::any().resource::<Lease>());
    let ended = replica.ended.await.unwrap();
    assert!(matches!(ended, ElectionOutcome::Lost(LossReason::NotRenewed, _)), "{ended:?}");
    work.check();
    assert!(
        work.log.lock().last().unwrap().renewed > 9 * SECOND,
        "the replica must have worked until the deadline"
    );
}

/// The state of a replica's connection, which determines what happens to its requests for the Lease.
#[derive(Clone, Copy, Default, PartialEq)]
enum Connection {
    #[default]
    Sound,
    Refused,
    /// Requests do not arrive.
    RequestsLost,
    /// The server executes requests, but its answers are lost.
    AnswersLost,
    /// The server executes writes, but its answers to them are lost.
    AnswersOfWritesLost,
    /// A request reaches the server after this delay, and its answer takes the same time.
    Slow(Duration),
}

/// Returns a client whose requests depend on `connection`.
fn client_over(connection: &Arc<Mutex<Connection>>, cluster: &ApiServer) -> Client {
    let (connection, cluster) = (connection.clone(), cluster.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (mut server, connection) = (cluster.clone(), *connection.lock());
        let writes = request.method() != Method::GET;
        // As on a real server, a request that has arrived is executed even if the client no longer waits for the answer.
        let served = tokio::spawn(async move {
            let delay = match connection {
                Connection::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
                Connection::RequestsLost => pending().await,
                Connection::Slow(delay) => delay,
                _ => Duration::ZERO,
            };
            sleep(delay).await;
            let answer = server.call(request).await;
            sleep(delay).await;
            match connection {
                Connection::AnswersLost => pending().await,
                Connection::AnswersOfWritesLost if writes => pending().await,
                _ => answer,
            }
        });
        async move { served.await.unwrap() }
    });
    ClientBuilder::new(service, "default").build()
}

fn seeds(cases: u64) -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("FLYBALL_SEED").or_else(|| number("FLYBALL_FIRST_SEED")).unwrap_or(1);
    first..first + number("FLYBALL_CASES").unwrap_or(cases)
}

/// Several replicas lose and regain their connection to the Lease, and are stopped and started. Only one replica works at a time, and no
/// reconcile starts after a renew deadline.
#[test]
fn in_random_elections_one_works_and_begins_nothing_after_the_renew_deadline() {
    let (mut begun, mut terms, mut lost) = (0, 0, 0);
    for seed in seeds(12) {
        eprintln!("repeat with FLYBALL_SEED={seed} FLYBALL_CASES=1");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let mut random = Random::new(seed);
            let (cluster, work) = (cluster(), Arc::<Work>::default());
            for n in 0..random.below(20) {
                cluster.put(&map(&format!("ns/m{n}")));
            }
            let mut connections = [Arc::default(), Arc::default()];
            let mut replicas = [0, 1].map(|n: usize| {
                let takes = Duration::from_millis(random.below(2_000));
                let client = client_over(&connections[n], &cluster);
                Replica::start_over(client, &cluster, &format!("{n}"), &work, takes)
            });
            for round in 0..100 {
                sleep(Duration::from_millis(random.below(8_000))).await;
                let n = random.below(2) as usize;
                let ms = random.below(4_000);
                *connections[n].lock() = match random.below(10) {
                    0..=3 => Connection::Sound,
                    4 => Connection::RequestsLost,
                    5 => Connection::AnswersLost,
                    6 => Connection::AnswersOfWritesLost,
                    7 => Connection::Refused,
                    _ => Connection::Slow(Duration::from_millis(ms)),
                };
                if random.below(8) == 0 {
                    replicas[n].stop.take();
                }
                for n in 0..2 {
                    if !replicas[n].ended.is_finished() {
                        continue;
                    }
                    let takes = Duration::from_millis(random.below(2_000));
                    connections[n] = Arc::default();
                    let name = format!("{n} after {round}");
                    let client = client_over(&connections[n], &cluster);
                    let next = Replica::start_over(client, &cluster, &name, &work, takes);
                    let ended = std::mem::replace(&mut replicas[n], next);
                    terms += ended.status.times_elected();
                    lost += u32::from(matches!(ended.ended.await.unwrap(), ElectionOutcome::Lost(..)));
                }
            }
            work.check();
            begun += work.log.lock().len();
        });
    }
    if std::env::var("FLYBALL_CASES").is_err() {
        assert!(begun > 3_000 && terms > 30 && lost > 10, "{begun} reconciles, {terms} terms, {lost} losses");
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_not_reported_as_started() {
    let lines = Lines::of_flyball();
    let _default = tracing::subscriber::set_default(lines.clone());
    let cluster = cluster();
    cluster.register::<Secret>();
    let forbidden = |what: &str| Status::failure(what, "Forbidden").with_code(403);
    cluster.fail_next(RequestMatcher::any().resource::<Secret>(), u32::MAX, forbidden("secrets"));
    // The replica cannot read the Lease, so it is never elected.
    cluster.fail_next(RequestMatcher::any().resource::<Lease>(), u32::MAX, forbidden("leases"));
    let mut election = Election::builder(cluster.client(), "ns", "l", "a").standby(true).build().unwrap();
    let all = watcher::Config::default;
    let controller = Controller::new(Api::<ConfigMap>::all(cluster.client()), all())
        .owns(Api::<Secret>::all(cluster.client()), all());
    let run = election.run(pending(), |leadership| {
        let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change());
        let controller = controller.with_leadership(&leadership);
        controller
            .run(reconcile, |_, _, _| Action::await_change(), Arc::new(()))
            .for_each(|_| std::future::ready(()))
    });
    assert!(tokio::time::timeout(Duration::from_secs(30), run).await.is_err());
    assert!(lines.with("reconciles have begun").is_empty());
}
