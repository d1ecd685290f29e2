//! A leader that stops for longer than its lease, and then continues: SIGSTOP and SIGCONT, or a frozen container. The wake-ups of all its timers are then
//! due, so its reconciles in flight may be polled before the election ends the work.

use std::future::pending;
use std::io::{self, BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_kube::Controller;
use flyball_kube_lease::{Election, ElectionOutcome, LossReason};
use flyball_kube_testing::ApiServer;
use futures_util::{FutureExt, StreamExt};
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::yield_now;
use tokio::time::{advance, sleep, timeout};
use tower::Service;

use crate::log_capture::Lines;
use crate::world::{Refused, map};

const SECOND: Duration = Duration::from_secs(1);

/// The number of objects, each of which has a reconcile in flight.
const OBJECTS: usize = 40;

fn cluster() -> ApiServer {
    let cluster = ApiServer::new();
    cluster.register::<ConfigMap>().register::<Lease>();
    for n in 0..OBJECTS {
        cluster.put(&map(&format!("ns/m{n}")));
    }
    cluster
}

/// What the reconciles of a test have done.
#[derive(Default)]
struct Polls {
    polls: AtomicUsize,
    dropped: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

impl Polls {
    /// Wakes all reconciles. Then the tasks that were woken run, before the timers of the runtime do. Returns the number of polls.
    async fn wake(&self) -> usize {
        let before = self.polls.load(Ordering::SeqCst);
        std::mem::take(&mut *self.wakers.lock()).into_iter().for_each(Waker::wake);
        yield_now().await;
        self.polls.load(Ordering::SeqCst) - before
    }
}

/// A reconcile that never ends.
struct Endless(Arc<Polls>);

impl Future for Endless {
    type Output = Result<Action, Refused>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.polls.fetch_add(1, Ordering::SeqCst);
        self.0.wakers.lock().push(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_dropped_instead_of_polled_once_the_term_and_its_grace_are_over() {
    let lines = Lines::of_flyball();
    let _default = tracing::subscriber::set_default(lines.clone());
    let cluster = cluster();
    let mut election = Election::builder(cluster.client(), "ns", "l", "a").standby(true).build().unwrap();
    let (status, polls) = (election.status(), Arc::<Polls>::default());
    let controller = Controller::new(Api::<ConfigMap>::all(cluster.client()), watcher::Config::default());
    let context = polls.clone();
    let ended = tokio::spawn(async move {
        let work = election.run(pending(), |leadership| {
            let reconciles = controller.with_leadership(&leadership).run(
                |_, polls| Endless(polls),
                |_, _, _| unreachable!("no reconcile fails"),
                context,
            );
            reconciles.for_each(|_| std::future::ready(()))
        });
        work.await
    });
    while polls.wakers.lock().len() < OBJECTS {
        sleep(SECOND / 10).await;
    }
    // The clock jumps between two polls, as it does for a process that is stopped.
    let over = SECOND * 25 / 2 - status.since_last_renewal().unwrap();
    advance(over - Duration::from_millis(1)).now_or_never();
    assert_eq!(polls.wake().await, OBJECTS, "the stop grace is not over");
    assert_eq!(polls.dropped.load(Ordering::SeqCst), 0);
    advance(Duration::from_millis(1)).now_or_never();
    assert_eq!(polls.wake().await, 0, "polled although the term and its grace are over");
    assert_eq!(polls.dropped.load(Ordering::SeqCst), OBJECTS);
    assert_eq!(ended.await.unwrap(), ElectionOutcome::Lost(LossReason::NotRenewed, None));
    assert_eq!(lines.with("the reconcile was dropped, because the leadership was over").len(), OBJECTS);
}

/// Serves the cluster to other processes, and returns its address.
async fn serve(cluster: ApiServer) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let cluster = cluster.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let mut cluster = cluster.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                    cluster.call(Request::from_parts(parts, Body::from(body))).await
                }
            });
            // A connection fails when its client is killed.
            tokio::spawn(async move {
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await)
            });
        }
    });
    address
}

/// The variables by which a process of the test below learns that it is a replica: the address of the API server, and its name.
const VARIABLES: [&str; 2] = ["FLYBALL_TEST_SERVER", "FLYBALL_TEST_REPLICA"];
const THREADS: usize = 2;

/// A replica in its own process. The reconciles of the leader write a line at each poll.
fn replica(server: &str, name: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.unwrap().block_on(async {
        let client = Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
        loop {
            let election = Election::builder(client.clone(), "ns", "l", name).lease_duration(SECOND * 2);
            let election =
                election.renew_deadline(SECOND * 13 / 10).retry_period(SECOND / 5).stop_grace(SECOND / 2);
            let controller =
                Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default());
            let mut election = election.standby(true).build().unwrap();
            let work = election.run(pending(), |leadership| {
                let reconcile = async |map: Arc<ConfigMap>, _: Arc<()>| -> Result<Action, Refused> {
                    loop {
                        write(&format!("polled {}", map.name_any()));
                        sleep(SECOND / 50).await;
                    }
                };
                let reconciles = controller.with_leadership(&leadership).run(
                    reconcile,
                    |_, _, _| unreachable!("no reconcile fails"),
                    Arc::new(()),
                );
                reconciles.for_each(|_| std::future::ready(()))
            });
            let ended = work.await;
            write(&format!("ended {ended:?}"));
        }
    });
}

/// Writes a line to the test, past the capture of the test harness. If the test has ended, this process ends.
fn write(line: &str) {
    if writeln!(io::stderr().lock(), "{line}").is_err() {
        std::process::exit(1);
    }
}

/// A process, which is killed when this value is dropped.
struct Process(Child);

impl Process {
    /// Starts a replica. Each line that it writes is sent with its number.
    fn start(number: usize, server: &str, lines: UnboundedSender<(usize, String)>) -> Self {
        let name = concat!(module_path!(), "::a_process_that_continues_after_its_lease_polls_no_reconcile");
        let name = name.split_once("::").unwrap().1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env(VARIABLES[0], server).env(VARIABLES[1], number.to_string());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| lines.send((number, line)).is_ok())
        });
        Self(child)
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test runs on real time, because it stops a process. It takes about four seconds; the timeout expires only if an election does not proceed.
#[cfg(unix)]
#[tokio::test]
async fn a_process_that_continues_after_its_lease_polls_no_reconcile() {
    if let [Ok(server), Ok(name)] = VARIABLES.map(std::env::var) {
        // The process of a replica.
        thread::spawn(move || replica(&server, &name)).join().unwrap();
        return;
    }
    let server = serve(cluster()).await;
    let (sender, mut lines) = unbounded_channel();
    let replicas = [0, 1].map(|number| Process::start(number, &server, sender.clone()));
    let test = async {
        // All reconciles of one replica are in flight.
        let mut in_flight = [const { std::collections::BTreeSet::new() }; 2];
        let leader = loop {
            let (replica, line) = lines.recv().await.unwrap();
            match line.strip_prefix("polled ") {
                Some(object) => _ = in_flight[replica].insert(object.to_owned()),
                None => in_flight[replica].clear(),
            }
            if in_flight[replica].len() == OBJECTS {
                break replica;
            }
        };
        replicas[leader].signal("STOP");
        while lines.recv().await.is_some_and(|(replica, _)| replica == leader) {}
        // The other replica leads.
        replicas[leader].signal("CONT");
        let mut polled = Vec::new();
        loop {
            match lines.recv().await.unwrap() {
                (replica, line) if replica == leader && line.starts_with("polled ") => polled.push(line),
                (replica, line) if replica == leader => break (polled, line),
                _ => {}
            }
        }
    };
    let (polled, ended) = timeout(60 * SECOND, test).await.expect("the elections must proceed");
    assert_eq!(ended, "ended Lost(NotRenewed, None)");
    // On each thread, one poll may have been interrupted between its check and its end.
    assert!(polled.len() <= THREADS, "{} of {OBJECTS} reconciles were polled: {polled:?}", polled.len());
}
