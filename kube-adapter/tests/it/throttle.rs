//! A client's rate and burst, on tokio's paused clock.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use flyball_kube::ThrottleLayer;
use flyball_ratelimit::{Quota, RateLimiter};
use flyball_sync::TokioTimer;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, advance};
use tower::retry::RetryLayer;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

fn quota(qps: u32, burst: u32) -> Quota {
    let number = |n| NonZeroU32::new(n).unwrap();
    Quota::per_second(number(qps)).allow_burst(number(burst))
}

/// Returns a service that records the time and the number of each request.
fn noting(
    calls: &Rc<RefCell<Vec<(u128, usize)>>>,
) -> impl Service<usize, Response = usize, Error = Infallible, Future: Send> + Clone + use<> {
    let start = Instant::now();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let calls = calls.clone();
    tokio::task::spawn_local(async move {
        while let Some(note) = receiver.recv().await {
            calls.borrow_mut().push(note);
        }
    });
    service_fn(move |n| {
        sender.send((start.elapsed().as_millis(), n)).unwrap();
        std::future::ready(Ok(n))
    })
}

async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

fn local(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_hundred_requests_at_fifty_a_second_keep_their_order_and_wake_one_waiter_each() {
    local(async {
        let calls = Rc::default();
        let throttle = ThrottleLayer::new(quota(50, 10));
        let mut service = throttle.layer(noting(&calls));
        let polls = Rc::new(RefCell::new(0));
        let mut answers: Vec<_> = (0..100)
            .map(|n| {
                let mut answer = Box::pin(service.call(n));
                let polls = polls.clone();
                poll_fn(move |context| {
                    *polls.borrow_mut() += 1;
                    answer.as_mut().poll(context)
                })
            })
            .map(Box::pin)
            .collect();
        assert_eq!(throttle.waiters(), 90);
        // The requests are polled in reverse order, but tokens must be granted in the order of the calls.
        answers.reverse();
        let tasks: Vec<_> = answers.into_iter().map(tokio::task::spawn_local).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        settle().await;
        let expected: Vec<_> = (0..100_usize).map(|n| (n.saturating_sub(9) as u128 * 20, n)).collect();
        let mut calls = calls.borrow().clone();
        // The first ten requests have their tokens immediately, so they reach the service in the order of the polls.
        calls[..10].sort();
        assert_eq!(calls, expected);
        assert_eq!(*polls.borrow(), 10 + 90 * 2, "a request is polled to wait and with its token");
        let waits = throttle.stats();
        assert_eq!((waits.requests, waits.delayed), (100, 90));
        assert_eq!(waits.longest_wait, Duration::from_millis(1800));
        assert_eq!(waits.total_wait, Duration::from_millis(20 * (90 * 91) / 2));
    });
}

#[test]
fn a_dropped_request_takes_no_token_and_those_behind_it_move_up() {
    local(async {
        let calls = Rc::default();
        let throttle = ThrottleLayer::new(quota(10, 1));
        let mut service = throttle.layer(noting(&calls));
        let mut answers: Vec<_> = (0..4).map(|n| service.call(n)).collect();
        let last = answers.pop().unwrap();
        let last = tokio::task::spawn_local(last);
        settle().await;
        drop(answers.drain(1..));
        drop(answers.pop()); // the dropped request had been granted its token, which is spent
        last.await.unwrap().unwrap();
        settle().await;
        assert_eq!(*calls.borrow(), [(100, 3)]);
        assert_eq!(throttle.waiters(), 0);
        // A request that is dropped after it was granted its token returns the token, and the next request gets it.
        let granted = service.call(4);
        let next = service.call(5);
        advance(Duration::from_millis(100)).await;
        drop(granted);
        next.await.unwrap();
        settle().await;
        assert_eq!(calls.borrow()[1..], [(200, 5)]);
    });
}

#[test]
fn clones_share_one_bucket_and_quota_changes_apply_to_waiting_requests() {
    local(async {
        let calls = Rc::default();
        let throttle = ThrottleLayer::new(quota(1, 1));
        let noting = noting(&calls);
        let mut one = throttle.layer(noting.clone());
        let mut two = throttle.clone().layer(noting);
        let mut three = two.clone();
        let answers = [one.call(0), two.call(1), three.call(2), one.call(3)];
        assert_eq!(throttle.waiters(), 3);
        throttle.set_quota(quota(100, 1));
        assert_eq!(throttle.quota(), quota(100, 1));
        for answer in answers {
            answer.await.unwrap();
        }
        settle().await;
        assert_eq!(*calls.borrow(), [(0, 0), (10, 1), (20, 2), (30, 3)]);
    });
}

/// A service that is not `Clone`, serves one request at a time, and panics if it is called without `poll_ready`.
struct StrictService {
    ready: bool,
    free: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl Service<()> for StrictService {
    type Response = ();
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if self.calls.load(Ordering::SeqCst) == 3 {
            return Poll::Ready(Err("closed"));
        }
        if !self.free.load(Ordering::SeqCst) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        self.free.store(false, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        let free = self.free.clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            free.store(true, Ordering::SeqCst);
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let (free, calls) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicUsize>::default());
    let throttle = ThrottleLayer::new(quota(1000, 1000));
    let service = throttle.layer(StrictService { ready: false, free, calls: calls.clone() });
    let start = Instant::now();
    let clients: Vec<_> = (0..3).map(|_| tokio::spawn(service.clone().oneshot(()))).collect();
    // A request that is dropped while it waits for the inner service blocks no other request.
    let mut impatient = service.clone();
    let gives_up = impatient.call(());
    drop(gives_up);
    for client in clients {
        // The paused clock does not advance while a task polls, so the test advances it.
        while !client.is_finished() {
            advance(Duration::from_millis(10)).await;
        }
        client.await.unwrap().unwrap();
    }
    assert!(start.elapsed() >= Duration::from_secs(3), "the requests must run one at a time");
    assert_eq!(
        service.oneshot(()).await,
        Err("closed"),
        "an error of `poll_ready` must be returned to the request"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// A task may keep a request without polling it, and poll a different future.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_kept_and_never_polled_holds_up_no_other() {
    let (free, calls) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default());
    let throttle = ThrottleLayer::new(quota(1000, 1000));
    let service = throttle.layer(StrictService { ready: false, free: free.clone(), calls: calls.clone() });
    let mut kept = [service.clone().call(()), service.clone().call(())].map(Box::pin);
    for request in &mut kept {
        let waits = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_pending()));
        assert!(waits.await, "the inner service is not ready");
    }
    free.store(true, Ordering::SeqCst);
    let other = tokio::time::timeout(Duration::from_secs(10), service.oneshot(()));
    assert_eq!(other.await, Ok(Ok(())));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_kube_waits_in_the_order_of_its_requests() {
    let throttle = ThrottleLayer::new(ThrottleLayer::CLIENT_GO_DEFAULT);
    let stack = service_fn(|request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(path.into_bytes()))))
    });
    let client = ClientBuilder::new(stack, "default").with_layer(&throttle).build();
    let start = Instant::now();
    let requests: Vec<_> = (0..20)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                let request = http::Request::get(format!("/{n}")).body(Vec::new()).unwrap();
                (client.request_text(request).await.unwrap(), start.elapsed().as_millis())
            })
        })
        .collect();
    for (n, request) in requests.into_iter().enumerate() {
        let expected = (n as u128).saturating_sub(9) * 200;
        assert_eq!(request.await.unwrap(), (format!("/{n}"), expected));
    }
    assert_eq!(throttle.stats().delayed, 10);
}

/// kube repeats each request up to 15 times, at first after 5 ms, 10 ms, 20 ms and so on.
#[tokio::test(start_paused = true)]
async fn retries_above_a_throttle_take_tokens() {
    let throttle = ThrottleLayer::new(quota(15, 15));
    let received = Arc::new(AtomicUsize::new(0));
    let server = received.clone();
    let stack = service_fn(move |_: http::Request<Body>| {
        server.fetch_add(1, Ordering::Relaxed);
        let busy = http::Response::builder().status(429).body(Body::empty()).unwrap();
        std::future::ready(Ok::<_, BoxError>(busy))
    });
    let retries = RetryLayer::new(RetryPolicy::server_retry());
    let client = ClientBuilder::new(stack, "default").with_layer(&throttle).with_layer(&retries).build();
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let client = client.clone();
        requests.spawn(async move {
            client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await
        });
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    // The last token of the tenth second may come at its very end.
    let received = received.load(Ordering::Relaxed);
    assert!((15 + 10 * 15 - 1..=15 + 10 * 15).contains(&received), "{received}");
    assert_eq!(throttle.stats().requests, received as u64);
}

/// Answers each request on a socket with 503, and counts the requests.
async fn refuse_all(listener: TcpListener, requests: Arc<AtomicUsize>) {
    loop {
        let (mut connection, _) = listener.accept().await.unwrap();
        let requests = requests.clone();
        tokio::spawn(async move {
            let (mut text, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(length @ 1..) = connection.read(&mut piece).await {
                text.extend_from_slice(&piece[..length]);
                if text.ends_with(b"\r\n\r\n") {
                    text.clear();
                    requests.fetch_add(1, Ordering::Relaxed);
                    let refusal = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
                    connection.write_all(refusal.as_bytes()).await.unwrap();
                }
            }
        });
    }
}

/// Uses the client that a program creates from its configuration, over a socket.
#[tokio::test]
async fn the_client_of_a_throttle_sends_no_attempt_without_a_token() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let serving = tokio::spawn(refuse_all(listener, requests.clone()));
    let throttle =
        ThrottleLayer::new(Quota::per_hour(NonZeroU32::MIN).allow_burst(NonZeroU32::new(5).unwrap()));
    let get = || http::Request::get("/version").body(Vec::new()).unwrap();

    let mut without_retries = config.clone();
    without_retries.default_retry = false;
    let client = throttle.client(without_retries).unwrap();
    assert!(matches!(client.request_text(get()).await, Err(kube::Error::Api(status)) if status.code == 503));
    assert_eq!(requests.load(Ordering::Relaxed), 1, "there are no retries if the configuration has none");

    let client = throttle.client(config).unwrap();
    let retrying = tokio::spawn(async move { client.request_text(get()).await.map(drop) });
    while throttle.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((requests.load(Ordering::Relaxed), throttle.stats().requests), (5, 5));
    retrying.abort();
    serving.abort();
}

/// A service that returns ready at its fourth `poll_ready`, and from then on for all requests.
struct SlowService {
    polls: u8,
    waker: Option<Waker>,
}

impl Service<usize> for SlowService {
    type Response = usize;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<usize, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.polls += 1;
        self.waker = Some(context.waker().clone());
        if self.polls < 4 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: usize) -> Self::Future {
        // Wakes the waiters, because a service may wake them at any time once it is ready.
        self.waker.take().into_iter().for_each(Waker::wake);
        if request == 1 {
            Box::pin(std::future::pending())
        } else {
            Box::pin(std::future::ready(Ok(request)))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_requests_of_one_task_are_both_woken() {
    let mut service = ThrottleLayer::new(quota(50, 10)).layer(SlowService { polls: 0, waker: None });
    let (waits, goes, start) = (service.call(2), service.call(1), Instant::now());
    let both = async {
        tokio::select! {
            biased;
            answer = waits => answer.unwrap(),
            _ = goes => unreachable!("the first request gets no response"),
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(600), both).await, Ok(2));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// A service that becomes ready when `ready` is set, and panics when it is called.
struct Panics {
    ready: Arc<AtomicBool>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Service<()> for Panics {
    type Response = ();
    type Error = Infallible;
    type Future = std::future::Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        *self.waker.lock() = Some(context.waker().clone());
        if self.ready.load(Ordering::SeqCst) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, (): ()) -> Self::Future {
        panic!("called")
    }
}

struct WakeCount {
    panics: bool,
    woken: AtomicUsize,
}

impl WakeCount {
    fn new(panics: bool) -> Arc<Self> {
        Arc::new(Self { panics, woken: AtomicUsize::new(0) })
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "the waker panics");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_leaves_no_other_request_asleep() {
    let (ready, waker) = (Arc::<AtomicBool>::default(), Arc::default());
    let mut service = ThrottleLayer::new(quota(50, 10)).layer(Panics { ready, waker: Arc::clone(&waker) });
    let tasks = [true, false, true, false].map(WakeCount::new);
    let mut requests = [(); 4].map(|()| Box::pin(service.call(())));
    for (request, task) in requests.iter_mut().zip(&tasks) {
        let waker = Waker::from(task.clone());
        assert!(request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let waker = waker.lock().take().unwrap();
    let woken = || tasks.each_ref().map(|task| task.woken.load(Ordering::SeqCst));
    let before = woken();
    catch_unwind(AssertUnwindSafe(|| waker.wake())).expect_err("the panic must propagate");
    assert_eq!(woken(), before.map(|woken| woken + 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_inner_service_panicked_is_not_pending_for_ever() {
    let ready = Arc::new(AtomicBool::new(true));
    let mut service = ThrottleLayer::new(quota(50, 10)).layer(Panics { ready, waker: Arc::default() });
    let mut request = Box::pin(service.call(()));
    let mut context = Context::from_waker(Waker::noop());
    for panicked in ["called", "polled after the inner service has refused the request, or panicked"] {
        let panic = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut context))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&panicked));
    }
}

/// After many tokens have been taken without a yield, the next `acquire` in the task yields before it joins the wait queue.
#[tokio::test(start_paused = true)]
async fn a_request_has_its_place_from_its_call_on_also_where_others_are_given_way_to() {
    let throttle = ThrottleLayer::new(quota(10, 1));
    let mut service = throttle.layer(service_fn(|n: usize| std::future::ready(Ok::<_, Infallible>(n))));
    service.call(0).await.unwrap();
    let plenty = RateLimiter::with_timer(quota(1000, 1000), TokioTimer::current());
    let mut context = Context::from_waker(Waker::noop());
    while pin!(plenty.acquire()).poll(&mut context).is_ready() {}
    let (first, second) = (service.call(1), service.call(2));
    assert_eq!(throttle.waiters(), 2);
    let start = Instant::now();
    let (second, first) = tokio::join!(async { (second.await.unwrap(), start.elapsed()) }, async {
        (first.await.unwrap(), start.elapsed())
    });
    assert_eq!((first, second), ((1, Duration::from_millis(100)), (2, Duration::from_millis(200))));
}
