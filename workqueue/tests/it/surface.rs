//! The public interface: auto traits, error traits, messages and sizes. A change here affects users.

use std::cell::Cell;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::mem::size_of;

use flyball_ratelimit::Exponential;
use flyball_sync::ManualTimer;
use flyball_workqueue::{
    AddError, AddErrorKind, AddWhenRoom, Added, AddedMany, DelayMode, DrainOptions, Fifo, Get,
    GetTimeoutError, KeyInfo, KeyState, Lease, LeaseOutcome, Leftovers, NoLimiter, NotDetached, OverdueLease,
    Queue, QueueBuilder, QueueStats, StatsReader, ThreadTimer, TryGetError,
};

type Limit = Exponential<&'static str>;
type Full = Queue<&'static str, Fifo, Limit, ManualTimer>;

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}
fn fixed<T: 'static>() {}

/// A key that is `Send`, but not `Sync`. The queue and its leases can still be sent to any thread.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SendOnly(u32, PhantomData<Cell<u32>>);

#[test]
fn auto_traits() {
    send::<Full>();
    sync::<Full>();
    unpin::<Full>();
    fixed::<Full>();
    send::<Queue<SendOnly>>();
    sync::<Queue<SendOnly>>();
    send::<Lease<SendOnly>>();
    send::<Get<'static, SendOnly>>();
    send::<Queue<u32>>();
    sync::<Queue<u32>>();
    send::<Lease<u32>>();
    sync::<Lease<u32>>();
    unpin::<Lease<u32>>();
    fixed::<Lease<u32>>();
    send::<Lease<&'static str>>();
    send::<Get<'static, u32>>();
    sync::<Get<'static, u32>>();
    unpin::<Get<'static, u32>>();
    send::<Get<'static, &'static str, Fifo, Limit, ManualTimer>>();
    send::<QueueBuilder<u32, Fifo, Limit, ThreadTimer>>();
    send::<Leftovers<u32>>();
    sync::<Leftovers<u32>>();
}

/// The auto traits of the other futures, and of the types that contain only data.
#[test]
fn auto_traits_of_the_rest() {
    type Time = ManualTimer;
    fn future<F: Send + Sync + Unpin + Debug>() {}
    future::<AddWhenRoom<'static, u32>>();
    future::<AddWhenRoom<'static, &'static str, Fifo, Limit, Time>>();
    let queue = Queue::<u32>::new();
    fn of<F: Send + Sync + Unpin>(_: F) {}
    of((queue.get_many(1), queue.wait_idle(), queue.next_overdue(std::time::Duration::ZERO)));
    #[cfg(feature = "stream")]
    future::<flyball_workqueue::LeaseStream<'static, u32>>();
    send::<AddWhenRoom<'static, SendOnly>>();
    fn data<T: Send + Sync + Unpin + Debug>() {}
    data::<AddedMany<u32>>();
    data::<Vec<KeyInfo<u32>>>();
    data::<OverdueLease<u32>>();
    data::<DelayMode>();
    data::<AddErrorKind>();
    data::<NotDetached>();
    data::<LeaseOutcome>();
    data::<QueueStats>();
    data::<StatsReader>();
    assert_eq!(DelayMode::default(), DelayMode::Earliest);
}

/// Keys need not be `Sync`, `Debug` or `Ord`.
#[test]
fn required_traits_of_a_key() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Bare(u32);
    let queue = Queue::new();
    queue.add(Bare(1)).unwrap();
    assert!(queue.try_get().unwrap().key() == &Bare(1));
    queue.shut_down();
    let refused = queue.add(Bare(2)).unwrap_err();
    assert_eq!(refused.into_key().0, 2);
}

/// A future that holds a lease across an await point is `Send`, so workers can be spawned.
#[test]
fn a_worker_can_be_spawned() {
    fn spawnable<F: Future + Send + 'static>(_: &F) {}
    let queue: Queue<u32> = Queue::new();
    let worker = async move {
        while let Some(lease) = queue.get().await {
            std::future::ready(()).await;
            lease.succeed();
        }
        queue.drain(DrainOptions::unlimited()).await
    };
    spawnable(&worker);
    let queue: Queue<u32> = Queue::new();
    let drain = queue.drain(DrainOptions::unlimited());
    drop(queue);
    spawnable(&drain);
}

fn error<E: Error + Send + Sync + 'static>() {}

#[test]
fn errors() {
    error::<AddError<u32>>();
    error::<TryGetError>();
    error::<GetTimeoutError>();
    let queue = Queue::new();
    assert_eq!(queue.try_get().unwrap_err().to_string(), "no key is ready");
    assert_eq!(
        queue.blocking_get_timeout(std::time::Duration::ZERO).unwrap_err().to_string(),
        "no key became ready in time"
    );
    queue.shut_down();
    assert_eq!(queue.try_get().unwrap_err().to_string(), "the queue is closed");
    assert_eq!(
        queue.blocking_get_timeout(std::time::Duration::ZERO).unwrap_err().to_string(),
        "the queue is closed"
    );
    // The messages do not contain the key.
    let refused = queue.add("secret").unwrap_err();
    assert_eq!(refused.to_string(), "the queue is shut down");
    assert!(!format!("{refused:?}").contains("secret"));
    assert!(refused.source().is_none());
    let boxed: Box<dyn Error + Send + Sync> = Box::new(refused);
    assert!(boxed.is::<AddError<&'static str>>());
    error::<NotDetached>();
    let full = Queue::builder().capacity(1).build();
    full.add("a").unwrap();
    let refused = full.add("b").unwrap_err();
    assert_eq!(
        (refused.to_string(), AddErrorKind::Full.to_string()),
        ("the queue is full".into(), "the queue is full".into())
    );
    assert_eq!(AddErrorKind::GivenUp.to_string(), "the key has failed too often");
}

#[test]
fn debug_needs_nothing_of_the_key() {
    enum Mute {}
    fn shows<T: Debug>() {}
    shows::<Queue<SendOnly>>();
    shows::<AddError<Mute>>();
    shows::<QueueBuilder<SendOnly>>();
    shows::<Get<'static, SendOnly>>();
    shows::<Added>();
    shows::<KeyState>();
    shows::<QueueStats>();
    shows::<AddWhenRoom<'static, SendOnly>>();
    fn speaks<T: Display>() {}
    speaks::<AddError<Mute>>();
    let queue = Queue::new();
    queue.add("a").unwrap();
    assert!(format!("{queue:?}").starts_with("Queue"));
}

#[test]
fn sizes() {
    let word = size_of::<usize>();
    assert_eq!(size_of::<Queue<String>>(), word, "a handle is one pointer");
    assert_eq!(size_of::<AddError<String>>(), size_of::<String>() + word, "a reason beside the key");
    assert_eq!(size_of::<TryGetError>(), 1);
    assert_eq!((size_of::<AddErrorKind>(), size_of::<NotDetached>()), (1, 0));
    assert_eq!(size_of::<GetTimeoutError>(), 1);
    assert_eq!(size_of::<Added>(), 1);
    assert_eq!(size_of::<Result<Added, AddError<Box<u8>>>>(), 2 * word);
    assert!(size_of::<Lease<Box<u8>>>() <= 4 * word, "key, queue, slot and generation");
    assert!(size_of::<Option<Lease<Box<u8>>>>() == size_of::<Lease<Box<u8>>>());
}

/// Type parameters that are left out have the defaults of `Queue::new`.
#[test]
fn types_by_default() {
    let delaying: Queue<u32, Fifo, NoLimiter, ThreadTimer> = Queue::new();
    delaying.add_after(1, std::time::Duration::ZERO).unwrap();
    let limiting: Queue<u32, Fifo, Exponential<u32>, ThreadTimer> = Queue::builder()
        .limiter(Exponential::new(std::time::Duration::from_secs(1)..=std::time::Duration::MAX))
        .build();
    limiting.add_rate_limited(1).unwrap();
    assert_eq!((delaying.ready_len(), limiting.ready_len(), limiting.num_requeues(&1)), (1, 0, 1));
    let _: Queue<u32, Fifo, NoLimiter> = Queue::default();
}

/// Clones of a queue are handles to the same queue.
#[test]
fn clones_share() {
    let queue = Queue::new();
    let other = queue.clone();
    queue.add(1).unwrap();
    other.try_get().unwrap().done();
    other.shut_down();
    assert!(queue.is_shutting_down());
}
