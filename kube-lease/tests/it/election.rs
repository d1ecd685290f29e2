//! Elections through kube's own client, on tokio's paused clock.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flyball_kube_lease::{
    Election, ElectionBuilder, ElectionOutcome, InvalidElectionConfig, Leadership, LeaseOverrun, LossReason,
};
use futures_util::FutureExt;
use http::Method;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, advance, sleep};

use crate::lease_server::{Connection, LeaseServer};

const SECOND: Duration = Duration::from_secs(1);

fn local<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // A test fails if it has not ended after one hour of virtual time. Every correct test takes less.
    let test = async { tokio::time::timeout(3600 * SECOND, test).await.expect("the test must end") };
    LocalSet::new().block_on(&runtime, test)
}

fn candidate(client: Client, identity: &str) -> ElectionBuilder {
    Election::builder(client, "ns", "l", identity).seed(7)
}

/// Work that ends when the leadership is over.
async fn until_lost(leadership: Leadership) {
    leadership.lost().await;
}

#[test]
fn a_leader_writes_the_record_of_client_go_renews_and_releases_it() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let status = election.status();
        let ended = election
            .run(pending(), |leadership| async move {
                let first = server.lease().spec.unwrap();
                assert_eq!(first.holder_identity.as_deref(), Some("a"));
                assert_eq!((first.lease_duration_seconds, first.lease_transitions), (Some(15), Some(0)));
                assert_eq!(first.acquire_time, first.renew_time);
                sleep(5 * SECOND).await;
                assert!(leadership.is_leader() && status.is_leader());
                assert_eq!((status.leader().as_deref(), status.times_elected()), (Some("a"), 1));
                assert_eq!(status.since_last_renewal(), Some(SECOND));
                let renewed = server.lease().spec.unwrap();
                assert_eq!(renewed.acquire_time, first.acquire_time);
                assert!(renewed.renew_time > first.renew_time);
                (server, status)
            })
            .await;
        let ElectionOutcome::Done((server, status)) = ended else { panic!("the candidate must have led") };
        let expected = [
            (0, Method::GET),
            (0, Method::POST),
            (2000, Method::PUT),
            (4000, Method::PUT),
            (5000, Method::PUT),
        ];
        assert_eq!(server.requests(), expected);
        let released = server.lease().spec.unwrap();
        assert_eq!(released.holder_identity.as_deref(), Some(""));
        assert_eq!((released.lease_duration_seconds, released.lease_transitions), (Some(1), Some(0)));
        assert!(!status.is_leader());
        assert_eq!(status.leader(), None);
    });
}

#[test]
fn acquires_a_released_lease_at_the_next_read_and_another_after_expiry() {
    for (release, most) in [(true, 4400), (false, 15_000 + 4_400)] {
        local(async {
            let server = LeaseServer::new();
            let mut first = candidate(server.client(), "a").release_on_exit(release).build().unwrap();
            let mut second = candidate(server.client(), "b").build().unwrap();
            let (ended, led) = (Rc::<Cell<_>>::default(), Rc::<Cell<_>>::default());
            let start = Instant::now();
            let noted = ended.clone();
            let follower = spawn_local({
                let led = led.clone();
                async move {
                    sleep(SECOND).await;
                    second.run(pending(), |_| async move { led.set(Some(start.elapsed())) }).await
                }
            });
            first.run(pending(), |_| sleep(7 * SECOND)).await;
            noted.set(start.elapsed());
            assert_eq!(follower.await.unwrap(), ElectionOutcome::Done(()));
            let wait = (led.get().unwrap() - ended.get()).as_millis();
            assert!(wait <= most, "{wait} ms");
            if !release {
                // The first candidate sent its last renewal at 6 s, one second before its work ended, so the other candidate must wait for at least
                // 14 s after the end of that work.
                assert!(wait >= 14_000, "{wait} ms: the lease was taken over while it was valid");
            }
            assert_eq!(server.lease().spec.unwrap().lease_transitions, Some(1));
        });
    }
}

#[test]
fn a_disconnected_leader_is_lost_at_the_deadline_and_its_work_is_dropped_before_others_lead() {
    for connection in [
        Connection::RequestsLost,
        Connection::ResponsesLost,
        Connection::Refuses(500),
        Connection::Refuses(403),
    ] {
        local(async {
            let server = LeaseServer::new();
            let cut: Arc<Mutex<Connection>> = Arc::default();
            let mut cut_off = candidate(server.client_with(cut.clone()), "a").build().unwrap();
            let mut other = candidate(server.client(), "b").build().unwrap();
            let start = Instant::now();
            let (told, dropped, led) =
                (Rc::<Cell<_>>::default(), Rc::<Cell<_>>::default(), Rc::<Cell<_>>::default());
            let follower = {
                let led = led.clone();
                spawn_local(async move {
                    sleep(SECOND).await;
                    other.run(pending(), |_| async move { led.set(start.elapsed().as_millis()) }).await
                })
            };
            let status = cut_off.status();
            let ended = cut_off
                .run(pending(), |leadership| {
                    let (told, dropped) = (told.clone(), dropped.clone());
                    async move {
                        let _dropped = RecordsDropTime(start, dropped);
                        sleep(5 * SECOND).await;
                        *cut.lock() = connection;
                        leadership.lost().await;
                        assert!(!leadership.is_leader());
                        told.set(start.elapsed().as_millis());
                        pending().await
                    }
                })
                .await;
            assert_eq!(ended, ElectionOutcome::<()>::Lost(LossReason::NotRenewed, None));
            // With `Connection::ResponsesLost`, the server executes the renewal at 6 s but does not answer it.
            assert_eq!(
                (told.get(), dropped.get()),
                (14_000, 16_500),
                "{connection:?}: the last renewal was sent at 4 s"
            );
            assert!(status.last_error().is_some());
            assert_eq!(follower.await.unwrap(), ElectionOutcome::Done(()));
            assert!(led.get() >= 19_000, "{} ms", led.get());
            assert!(
                led.get()
                    <= 15_000
                        + 4_000
                        + 4_400
                        + if connection == Connection::ResponsesLost { 10_000 } else { 0 },
                "{} ms",
                led.get()
            );
        });
    }
}

struct RecordsDropTime(Instant, Rc<Cell<u128>>);

impl Drop for RecordsDropTime {
    fn drop(&mut self) {
        self.1.set(self.0.elapsed().as_millis());
    }
}

#[test]
fn an_outage_shorter_than_the_deadline_is_survived() {
    local(async {
        for connection in [Connection::RequestsLost, Connection::ResponsesLost, Connection::Refuses(503)] {
            let server = LeaseServer::new();
            let mut election = candidate(server.client(), "a").build().unwrap();
            let status = &election.status();
            let server = &server;
            let ended = election
                .run(pending(), |leadership| async move {
                    sleep(3 * SECOND).await;
                    server.connection(connection);
                    sleep(6 * SECOND).await;
                    assert!(status.last_error().is_some());
                    server.connection(Connection::Ok);
                    sleep(60 * SECOND).await;
                    assert!(leadership.is_leader());
                    assert_eq!(status.last_error(), None);
                })
                .await;
            assert_eq!(ended, ElectionOutcome::Done(()), "{connection:?}");
            assert_eq!(server.lease().spec.unwrap().lease_transitions, Some(0));
        }
    });
}

#[test]
fn reads_the_lease_after_a_conflict_and_keeps_other_fields() {
    local(async {
        let server = &LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let ended = election
            .run(pending(), |leadership| async move {
                for n in 0..30 {
                    sleep(SECOND).await;
                    server.overwrite(|lease| {
                        lease["metadata"]["labels"] = json!({"n": n.to_string()});
                        lease["spec"]["strategy"] = json!("OldestEmulationVersion");
                    });
                }
                leadership.is_leader()
            })
            .await;
        assert_eq!(ended, ElectionOutcome::Done(true));
        let lease = server.lease();
        assert_eq!(lease.metadata.labels.unwrap()["n"], "29");
        assert_eq!(lease.spec.unwrap().strategy.as_deref(), Some("OldestEmulationVersion"));
    });
}

#[test]
fn the_work_ends_when_another_client_takes_the_lease() {
    for holder in ["b", ""] {
        local(async {
            let server = LeaseServer::new();
            let mut election = candidate(server.client(), "a").build().unwrap();
            let start = Instant::now();
            let ended = election
                .run(pending(), |_| async {
                    sleep(3 * SECOND).await;
                    server.overwrite(|lease| lease["spec"]["holderIdentity"] = json!(holder));
                    pending::<()>().await;
                })
                .await;
            assert_eq!(ended, ElectionOutcome::Lost(LossReason::Taken(holder.into()), None));
            assert_eq!(start.elapsed(), 4 * SECOND, "the loss must be noticed at the next renewal");
            assert_eq!(server.holder(), holder, "the candidate must not take the lease back");
        });
    }
}

#[test]
fn a_leader_whose_lease_was_deleted_stops_at_its_next_renewal() {
    local(async {
        let server = &LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let (start, dropped) = (Instant::now(), Rc::<Cell<_>>::default());
        let ended = election
            .run(pending(), |_| {
                let dropped = dropped.clone();
                async move {
                    let _dropped = RecordsDropTime(start, dropped);
                    sleep(3 * SECOND).await;
                    server.remove();
                    pending::<()>().await
                }
            })
            .await;
        assert_eq!(ended, ElectionOutcome::Lost(LossReason::Deleted, None));
        assert_eq!(dropped.get(), 4_000, "the work must be dropped without a stop grace");
        assert_eq!(server.holder_if_any(), None, "the leader must not create the Lease again");
    });
}

/// Deletes the Lease of a leader at 200 points of its renewal and of the reads of another candidate. The leader's process is restarted when it has lost
/// its leadership.
#[test]
fn a_lease_that_is_deleted_by_hand_never_leads_to_two_leaders() {
    let (mut overlaps, mut longest) = (0, Duration::ZERO);
    for phase in 0..200_u32 {
        local(async {
            let server = LeaseServer::new();
            let working = Rc::<RefCell<Vec<(&str, Instant)>>>::default();
            let two = Rc::<Cell<Duration>>::default();
            // A process that is restarted is a new candidate, which does not know of the Lease.
            for (name, restarts_after) in [("a", Some(SECOND * 20 * (phase % 2))), ("b", None)] {
                let (client, working, two) = (server.client(), working.clone(), two.clone());
                spawn_local(async move {
                    sleep(SECOND * u32::from(name == "b")).await;
                    let new = || candidate(client.clone(), name).seed(phase.into()).build().unwrap();
                    let mut election = new();
                    loop {
                        let work = election.run(pending(), |_| {
                            let (working, two) = (working.clone(), two.clone());
                            async move {
                                let _worker = Worker::new(name, working, two);
                                pending::<()>().await
                            }
                        });
                        work.await;
                        if let Some(time) = restarts_after {
                            sleep(time).await;
                            election = new();
                        }
                    }
                });
            }
            sleep(20 * SECOND + SECOND / 50 * phase).await;
            assert_eq!(working.borrow().len(), 1);
            server.remove();
            sleep(30 * SECOND).await;
            assert_eq!(working.borrow().len(), 1, "a candidate must lead again");
            overlaps += u32::from(two.get() > Duration::ZERO);
            longest = longest.max(two.get());
        });
    }
    assert_eq!((overlaps, longest), (0, Duration::ZERO), "phases with two leaders, and the longest time");
}

/// The work of a leader. Records for how long two leaders work at once.
struct Worker {
    name: &'static str,
    working: Rc<RefCell<Vec<(&'static str, Instant)>>>,
    two: Rc<Cell<Duration>>,
}

impl Worker {
    fn new(
        name: &'static str,
        working: Rc<RefCell<Vec<(&'static str, Instant)>>>,
        two: Rc<Cell<Duration>>,
    ) -> Self {
        working.borrow_mut().push((name, Instant::now()));
        Self { name, working, two }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let working = &mut *self.working.borrow_mut();
        working.retain(|(name, _)| *name != self.name);
        if let Some((_, since)) = working.first() {
            self.two.set(self.two.get() + since.elapsed());
        }
    }
}

#[test]
fn a_response_that_does_not_arrive_keeps_the_error_before_it() {
    local(async {
        let server = &LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let status = &election.status();
        server.connection(Connection::Refuses(503));
        let watched = async {
            sleep(SECOND).await;
            let refused = status.last_error().unwrap();
            server.connection(Connection::RequestsLost);
            for _ in 0..3 {
                sleep(20 * SECOND).await;
                let late = format!("no response in time; before that: {refused}");
                assert_eq!(status.last_error().as_deref(), Some(&*late));
            }
            server.connection(Connection::Ok);
            sleep(20 * SECOND).await;
            assert_eq!(status.last_error(), None);
            // A response ends the series. This candidate leads until 10 s after its last renewal.
            server.connection(Connection::RequestsLost);
            sleep(8 * SECOND).await;
            assert_eq!(status.last_error().as_deref(), Some("no response in time"));
        };
        tokio::select! {
            () = watched => {}
            outcome = election.run(pending(), async |leadership| leadership.lost().await) => panic!("{outcome:?}"),
        }
    });
}

#[test]
fn a_404_that_is_not_about_the_lease_stops_no_leader_and_lets_no_candidate_create_it() {
    local(async {
        for connection in [
            Connection::Refuses(404), // of a proxy, or of an API that is not served
            Connection::Missing("namespaces", "l"),
            Connection::Missing("leases", "other"),
        ] {
            let server = &LeaseServer::new();
            let mut election = candidate(server.client(), "a").build().unwrap();
            let status = &election.status();
            let ended = election
                .run(pending(), |leadership| async move {
                    sleep(3 * SECOND).await;
                    server.connection(connection);
                    sleep(6 * SECOND).await;
                    assert!(leadership.is_leader() && status.last_error().is_some());
                    server.connection(Connection::Ok);
                    sleep(60 * SECOND).await;
                    assert!(leadership.is_leader());
                })
                .await;
            assert_eq!(ended, ElectionOutcome::Done(()), "{connection:?}");

            let server = LeaseServer::new();
            server.connection(connection);
            let mut election = candidate(server.client(), "a").build().unwrap();
            assert_eq!(election.run(sleep(9 * SECOND), until_lost).await, ElectionOutcome::Stopped);
            let sent = server.sent();
            assert!(
                sent.len() > 1 && sent.iter().all(|method| method == Method::GET),
                "{connection:?}: {sent:?}"
            );
        }
    });
}

/// A future that counts its polls, and whose waker the test calls.
#[derive(Clone, Default)]
struct CountsPolls {
    polls: Rc<Cell<u32>>,
    waker: Rc<RefCell<Option<Waker>>>,
}

impl CountsPolls {
    /// Wakes the future, and runs all tasks that were woken before the timers of the runtime.
    async fn wake(&self) {
        self.waker.borrow().as_ref().unwrap().wake_by_ref();
        tokio::task::yield_now().await;
    }
}

impl Future for CountsPolls {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.polls.set(self.polls.get() + 1);
        *self.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// As after SIGSTOP and SIGCONT, the clock jumps between two polls of a task, and the task is polled before the election.
#[test]
fn a_guarded_future_is_dropped_instead_of_polled_once_the_term_and_its_grace_are_over() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let future = CountsPolls::default();
        let polled = future.clone();
        let mut run = pin!(election.run(pending(), |leadership| {
            let task = spawn_local(leadership.guard(polled));
            async move { task.await.unwrap() }
        }));
        // The last renewal is sent at 4 s.
        assert!(tokio::time::timeout(5 * SECOND, run.as_mut()).await.is_err());
        assert_eq!(future.polls.get(), 1);
        for (jump, polls) in [(SECOND, 2), (SECOND * 21 / 2 - Duration::from_nanos(1), 3)] {
            advance(jump).now_or_never();
            future.wake().await;
            assert_eq!(future.polls.get(), polls, "within the stop grace");
        }
        assert_eq!(Rc::strong_count(&future.polls), 2);
        advance(Duration::from_nanos(1)).now_or_never();
        future.wake().await;
        assert_eq!((future.polls.get(), Rc::strong_count(&future.polls)), (3, 1), "not dropped in time");
        let ended = run.await;
        assert_eq!(ended, ElectionOutcome::Lost(LossReason::NotRenewed, None));
    });
}

#[test]
fn a_guarded_future_is_dropped_when_the_lease_is_overwritten_or_deleted_or_the_work_has_ended() {
    for end in ["overwritten", "deleted", "ended", "dropped"] {
        local(async {
            let server = LeaseServer::new();
            let mut election = candidate(server.client(), "a").build().unwrap();
            let future = CountsPolls::default();
            let task = Rc::<RefCell<Option<_>>>::default();
            let run = election.run(pending(), |leadership| {
                task.replace(Some(spawn_local(leadership.guard(future.clone()))));
                async {
                    sleep(3 * SECOND).await;
                    match end {
                        "overwritten" => {
                            server.overwrite(|lease| lease["spec"]["holderIdentity"] = "b".into())
                        }
                        "deleted" => server.remove(),
                        "ended" => return,
                        _ => {}
                    }
                    pending::<()>().await;
                }
            });
            let _ = tokio::time::timeout(5 * SECOND, run).await;
            let polls = future.polls.get();
            future.wake().await;
            assert_eq!(future.polls.get(), polls, "{end}");
            assert_eq!(task.take().unwrap().await.unwrap(), None, "{end}");
        });
    }
}

#[test]
fn the_token_of_a_term_is_greater_than_all_earlier_ones_even_after_a_deletion() {
    local(async {
        let server = &LeaseServer::new();
        let mut tokens = Vec::new();
        for deleted in [false, false, true, true, false] {
            let mut election = candidate(server.client(), "a").standby(true).build().unwrap();
            let ended = election
                .run(pending(), |leadership| async move {
                    assert_eq!(leadership.token(), None, "the term has not begun");
                    leadership.elected().await;
                    let token = leadership.token();
                    assert_eq!(token, server.version().parse().ok());
                    sleep(30 * SECOND).await;
                    assert_eq!(leadership.token(), token, "a renewal must not change the token");
                    assert!(server.version().parse().ok() > token);
                    token
                })
                .await;
            let ElectionOutcome::Done(Some(token)) = ended else { panic!("{ended:?}") };
            assert!(tokens.iter().all(|earlier| *earlier < token), "{tokens:?}, {token}");
            tokens.push(token);
            if deleted {
                server.remove();
            }
        }
        assert_eq!(
            server.lease().spec.unwrap().lease_transitions,
            Some(0),
            "a deletion resets the transitions"
        );
    });
}

#[test]
fn a_version_that_is_no_number_gives_no_token() {
    local(async {
        for prefix in ["v", "+", "-", " ", "99999999999999999999"] {
            let server = LeaseServer::new();
            server.prefix_versions(prefix);
            let mut election = candidate(server.client(), "a").build().unwrap();
            let token = election.run(pending(), |leadership| async move { leadership.token() });
            assert_eq!(token.await, ElectionOutcome::Done(None), "{prefix:?}");
        }
    });
}

#[test]
fn lost_completes_in_time_in_another_task() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let status = election.status();
        let start = Instant::now();
        let told = Rc::<Cell<_>>::default();
        let (noted, polls) = (told.clone(), Rc::<Cell<u32>>::default());
        let counted = polls.clone();
        let mut run = pin!(election.run(pending(), |leadership| {
            let lost = leadership.lost();
            spawn_local(async move {
                lost.await;
                noted.set(start.elapsed().as_millis());
            });
            poll_fn(move |_| {
                counted.set(counted.get() + 1);
                Poll::<()>::Pending
            })
        }));
        // The candidate leads, and then its future is not polled for 17 s, as if its thread were blocked.
        let begins = poll_fn(|context| {
            assert!(run.as_mut().poll(context).is_pending());
            if status.is_leader() { Poll::Ready(()) } else { Poll::Pending }
        });
        begins.await;
        assert_eq!(status.live(Duration::ZERO), Ok(()));
        sleep(14 * SECOND).await;
        assert!(!status.is_leader());
        assert_eq!(told.get(), 10_000);
        sleep(3 * SECOND).await;
        assert_eq!(status.live(SECOND), Err(LeaseOverrun(2 * SECOND)));
        assert_eq!(status.live(2 * SECOND), Ok(()));
        // After these 17 s, the work must not be polled.
        let before = polls.get();
        assert_eq!(run.as_mut().await, ElectionOutcome::Lost(LossReason::NotRenewed, None));
        assert_eq!(polls.get(), before);
        assert_eq!(status.live(Duration::ZERO), Ok(()));
    });
}

#[test]
fn a_late_response_does_not_prolong_an_ended_term() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let mut run = pin!(election.run(pending(), until_lost));
        let mut run = poll_fn(|context| run.as_mut().poll(context));
        for _ in 0..100 {
            assert!((&mut run).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        // The task sends a renewal, and is not polled from then until after the deadline.
        advance(9 * SECOND).await;
        for _ in 0..100 {
            if server.requests().last().is_some_and(|(at, _)| *at == 9000) {
                break;
            }
            assert!((&mut run).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert_eq!(
            server.requests().last(),
            Some(&(9000, Method::PUT)),
            "the server has executed the renewal"
        );
        advance(2 * SECOND).await;
        assert_eq!(run.await, ElectionOutcome::Lost(LossReason::NotRenewed, Some(())));
    });
}

#[test]
fn a_response_that_is_processed_at_the_deadline_does_not_prolong_the_term() {
    local(async {
        let server = LeaseServer::new();
        let connection: Arc<Mutex<Connection>> = Arc::default();
        let mut election = candidate(server.client_with(connection.clone()), "a").build().unwrap();
        let status = election.status();
        let run = election.run(pending(), |_| {
            // The renewal is sent and executed at 2 s, but its response arrives at 11 s, after the term has ended at 10 s.
            *connection.lock() = Connection::BlocksClient(9 * SECOND);
            pending::<()>()
        });
        let ended = tokio::time::timeout(60 * SECOND, run).await;
        assert_eq!(
            ended,
            Ok(ElectionOutcome::Lost(LossReason::NotRenewed, None)),
            "a term that was reported as over must not be extended"
        );
        assert_eq!(status.times_elected(), 1);
    });
}

#[test]
fn a_work_that_ends_after_its_leadership_has_not_ended_while_it_led() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        // The work blocks its thread for too long.
        let ended =
            election.run(pending(), |_| async { advance(11 * SECOND).now_or_never().is_some() }).await;
        assert_eq!(ended, ElectionOutcome::Lost(LossReason::NotRenewed, Some(false)));
        assert_eq!(
            server.holder(),
            "a",
            "the lease must not be released, because another candidate may hold it"
        );
    });
}

#[test]
fn lost_is_pending_while_the_lease_is_renewed() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let start = Instant::now();
        let ended = election.run(sleep(61 * SECOND), |leadership| async move {
            leadership.lost().await;
            start.elapsed()
        });
        assert_eq!(ended.await, ElectionOutcome::Done(61 * SECOND));
    });
}

#[test]
fn the_work_is_dropped_before_the_lease_is_released() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let holder = Rc::<RefCell<String>>::default();
        let ended = election.run(pending(), |_| {
            let holds = RecordsHolder(server.clone(), holder.clone());
            // Unlike an async block, this future keeps its captured values after it has completed.
            poll_fn(move |_| {
                let _ = &holds;
                Poll::Ready(())
            })
        });
        assert_eq!(ended.await, ElectionOutcome::Done(()));
        assert_eq!((holder.borrow().as_str(), server.holder().as_str()), ("a", ""));
    });
}

/// When dropped, records which candidate holds the lease at that time.
struct RecordsHolder(LeaseServer, Rc<RefCell<String>>);

impl Drop for RecordsHolder {
    fn drop(&mut self) {
        self.1.replace(self.0.holder());
    }
}

#[test]
fn a_failed_release_ends_and_is_no_overrun() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let status = election.status();
        let start = Instant::now();
        let probe = spawn_local(async move {
            for _ in 0..60 {
                sleep(SECOND).await;
                assert_eq!(status.live(Duration::ZERO), Ok(()), "{:?}", start.elapsed());
            }
        });
        let ended = election.run(pending(), |_| async {
            sleep(9 * SECOND).await;
            server.connection(Connection::RequestsLost);
        });
        assert_eq!(ended.await, ElectionOutcome::Done(()));
        // To release the lease, the candidate sends one write and then three reads, each of which hangs for half of the renew deadline (5 s).
        assert_eq!(start.elapsed(), (9 + 20) * SECOND);
        probe.await.unwrap();
        assert_eq!(server.holder(), "a");
    });
}

#[test]
fn a_panic_of_the_work_releases_the_lease_and_a_panic_of_the_callback_has_no_effect() {
    local(async {
        let server = LeaseServer::new();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let noted = seen.clone();
        let mut election = candidate(server.client(), "a")
            .on_new_leader(move |leader| {
                noted.lock().push(leader.to_owned());
                panic!("no thanks");
            })
            .build()
            .unwrap();
        let status = election.status();
        let run = election.run(pending(), |_| async {
            sleep(3 * SECOND).await;
            panic!("the work");
        });
        let panic = AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"the work"));
        assert_eq!(server.holder(), "");
        assert!(!status.is_leader());
        // The election can run again, and calls the callback again for the new leader.
        assert_eq!(election.run(pending(), |_| async { 7 }).await, ElectionOutcome::Done(7));
        assert_eq!(*seen.lock(), ["a", "a"]);
        assert_eq!(status.times_elected(), 2);
    });
}

#[test]
fn a_stop_ends_a_candidate_immediately_and_a_leader_after_its_work() {
    local(async {
        let server = LeaseServer::new();
        server.overwrite(|lease| {
            lease["spec"] = json!({"holderIdentity": "other", "leaseDurationSeconds": 600})
        });
        let mut election = candidate(server.client(), "a").build().unwrap();
        let start = Instant::now();
        let never = |_: Leadership| pending::<()>();
        assert_eq!(election.run(sleep(5 * SECOND), never).await, ElectionOutcome::Stopped);
        assert_eq!(start.elapsed(), 5 * SECOND);
        assert_eq!(server.holder(), "other");

        server.overwrite(|lease| lease["spec"] = json!({}));
        let held = Rc::<RefCell<Vec<_>>>::default();
        let ended = election.run(sleep(5 * SECOND), |leadership| {
            let (server, held) = (server.clone(), held.clone());
            async move {
                leadership.lost().await;
                // The work may take as long as it needs, even longer than the lease duration.
                for _ in 0..20 {
                    sleep(SECOND).await;
                    held.borrow_mut().push((leadership.is_leader(), server.holder()));
                }
                "ended in order"
            }
        });
        assert_eq!(ended.await, ElectionOutcome::Done("ended in order"));
        assert!(held.borrow().iter().all(|held| *held == (true, "a".to_owned())), "{held:?}");
        assert_eq!(server.holder(), "");
    });
}

#[test]
fn a_candidate_that_is_stopped_while_it_acquires_releases_the_lease() {
    for connection in [Connection::Slow(SECOND / 2), Connection::WriteResponsesLost] {
        for taken_over in [false, true] {
            for stop in (0..48).map(|n| SECOND / 4 * n) {
                local(async {
                    let server = LeaseServer::new();
                    if taken_over {
                        server.overwrite(|lease| {
                            lease["spec"] = json!({"holderIdentity": "b", "leaseDurationSeconds": 1})
                        });
                    }
                    server.connection(connection);
                    let mut election = candidate(server.client(), "a").build().unwrap();
                    let start = Instant::now();
                    let ended = election.run(sleep(stop), until_lost).await;
                    let took = start.elapsed() - stop;
                    let place = format!(
                        "{connection:?}, {taken_over}, stopped after {stop:?}, ended in {took:?}: {ended:?}"
                    );
                    // The bound of 10 s includes the open write, the write that releases the lease, and the read that checks the release.
                    assert!(took <= 10 * SECOND, "{place}");
                    for _ in 0..10 {
                        assert_ne!(server.holder_if_any().as_deref(), Some("a"), "{place}");
                        sleep(SECOND).await;
                    }
                });
            }
        }
    }
}

#[test]
fn a_dropped_run_ends_its_term_and_leaves_the_lease_to_run_out() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let status = election.status();
        let kept = Rc::<RefCell<Option<Leadership>>>::default();
        let keep = kept.clone();
        let run = election.run(pending(), |leadership| async move {
            keep.replace(Some(leadership));
            pending::<()>().await;
        });
        assert!(tokio::time::timeout(3 * SECOND, run).await.is_err());
        let leadership = kept.take().unwrap();
        assert!(!leadership.is_leader() && !status.is_leader());
        leadership.lost().await;
        assert_eq!(server.holder(), "a");
        sleep(60 * SECOND).await;
        assert_eq!(status.live(Duration::ZERO), Ok(()), "no work may continue");
    });
}

#[test]
fn periods_that_do_not_fit_cannot_be_built() {
    local(async {
        let server = LeaseServer::new();
        let built = |change: fn(ElectionBuilder) -> ElectionBuilder| {
            change(candidate(server.client(), "a")).build().map(drop)
        };
        assert_eq!(built(|b| b), Ok(()));
        assert_eq!(built(|b| b.lease_duration(10 * SECOND)), Err(InvalidElectionConfig::RenewDeadline));
        assert_eq!(built(|b| b.lease_duration(Duration::MAX)), Err(InvalidElectionConfig::RenewDeadline));
        assert_eq!(built(|b| b.renew_deadline(12 * SECOND / 5)), Err(InvalidElectionConfig::RetryPeriod));
        assert!(built(|b| b.renew_deadline(12 * SECOND / 5 + Duration::from_nanos(1))).is_ok());
        assert_eq!(built(|b| b.retry_period(Duration::ZERO)), Err(InvalidElectionConfig::RetryPeriod));
        assert_eq!(built(|b| b.stop_grace(5 * SECOND)), Err(InvalidElectionConfig::StopGrace));
        assert_eq!(built(|b| b.stop_grace(Duration::ZERO)), Ok(()));
        let nobody = candidate(server.client(), "").build().map(drop);
        assert_eq!(nobody, Err(InvalidElectionConfig::Identity));
        // A Lease stores whole seconds. The duration is rounded up, so that other candidates never lead too early.
        let short = candidate(server.client(), "a")
            .retry_period(SECOND / 10)
            .renew_deadline(SECOND / 5)
            .lease_duration(SECOND / 2);
        short
            .build()
            .unwrap()
            .run(pending(), |_| async {
                assert_eq!(server.lease().spec.unwrap().lease_duration_seconds, Some(1))
            })
            .await;
    });
}

#[test]
fn a_name_that_no_lease_can_have_cannot_be_built() {
    local(async {
        let server = LeaseServer::new();
        let built = |namespace: &str, name: &str| {
            Election::builder(server.client(), namespace, name, "a").build().map(drop)
        };
        for name in ["a", "a.b-c.0", &"a".repeat(253)] {
            assert_eq!(built("ns", name), Ok(()), "{name}");
        }
        for name in ["", "A", "a_b", "a/b", "..", "a.", "a..b", "-a", "a-", "a.-b", "ä", &"a".repeat(254)] {
            assert_eq!(built("ns", name), Err(InvalidElectionConfig::Name), "{name}");
        }
        for namespace in ["", "A", "a.b", "a/b", "-a", &"a".repeat(64)] {
            assert_eq!(built(namespace, "l"), Err(InvalidElectionConfig::Name), "{namespace}");
        }
        assert_eq!(built(&"a".repeat(63), "l"), Ok(()));
    });
}

#[test]
fn a_stop_while_a_request_is_in_flight_is_no_failure() {
    for stop in (0..48).map(|n| SECOND / 4 * n) {
        local(async {
            let server = LeaseServer::new();
            server.connection(Connection::Slow(SECOND / 2));
            let mut election = candidate(server.client(), "a").build().unwrap();
            let status = election.status();
            let ended = election.run(sleep(stop), until_lost).await;
            assert_eq!(status.last_error(), None, "stopped after {stop:?}: {ended:?}");
            let reads = server.requests().iter().filter(|(_, method)| *method == Method::GET).count();
            assert!(reads <= 1, "stopped after {stop:?}: a write conflicted with an open one");
            for _ in 0..5 {
                assert_ne!(server.holder_if_any().as_deref(), Some("a"), "stopped after {stop:?}");
                sleep(SECOND).await;
            }
        });
    }
}

#[test]
fn a_refused_release_is_tried_again_after_a_retry_period() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let start = Instant::now();
        let ended = election.run(pending(), |_| async {
            sleep(9 * SECOND).await;
            server.connection(Connection::Refuses(503));
        });
        // The server works again one second after the first attempt.
        let (ended, ()) = futures_util::join!(ended, async {
            sleep(10 * SECOND).await;
            assert_eq!(server.holder(), "a");
            server.connection(Connection::Ok);
        });
        assert_eq!(ended, ElectionOutcome::Done(()));
        assert_eq!((start.elapsed(), &*server.holder()), (11 * SECOND, ""));
    });
}

#[test]
fn a_lease_whose_times_are_in_the_year_9999_is_read() {
    for holder in ["a", "b"] {
        local(async {
            let server = LeaseServer::new();
            let last = "9999-12-31T23:59:59.999999Z";
            server.overwrite(|lease| {
                lease["spec"] = json!({
                    "holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": last, "renewTime": last,
                    "strategy": "OldestEmulationVersion",
                });
            });
            let mut election = candidate(server.client(), "a").build().unwrap();
            let start = Instant::now();
            let ended = election.run(pending(), async |_| start.elapsed()).await;
            let ElectionOutcome::Done(waited) = ended else { panic!("{ended:?}") };
            let least = if holder == "a" { Duration::ZERO } else { 15 * SECOND };
            assert!((least..=least + SECOND).contains(&waited), "{waited:?}");
            server.overwrite(|lease| {
                assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion", "other fields are kept");
                assert_eq!(lease["spec"]["holderIdentity"], "");
            });
        });
    }
}

/// Work that panics when it is dropped.
struct PanicsOnDrop<F>(F);

impl<F: Future + Unpin> Future for PanicsOnDrop<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<F> Drop for PanicsOnDrop<F> {
    fn drop(&mut self) {
        panic!("the drop");
    }
}

#[test]
fn a_panic_in_the_drop_of_the_work_releases_the_lease() {
    local(async {
        let server = LeaseServer::new();
        let mut election = candidate(server.client(), "a").build().unwrap();
        let run = election.run(pending(), |_| PanicsOnDrop(std::future::ready(7)));
        let panic = AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
        assert_eq!((panic.downcast_ref(), &*server.holder()), (Some(&"the drop"), ""));
        // If both panic, the first panic propagates.
        let run = election.run(pending(), |_| PanicsOnDrop(Box::pin(async { panic!("the work") })));
        let panic = AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
        assert_eq!((panic.downcast_ref(), &*server.holder()), (Some(&"the work"), ""));
        // A lease that was lost is not released.
        let run = election.run(pending(), |_| {
            server.overwrite(|lease| lease["spec"]["holderIdentity"] = "b".into());
            PanicsOnDrop(pending::<()>())
        });
        let panic = AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
        assert_eq!((panic.downcast_ref(), &*server.holder()), (Some(&"the drop"), "b"));
    });
}
