//! The operations that every queue has, so that each workload is written once.

use benches::naive_port::NaivePort;
use flyball_workqueue::{Lease, Queue};

use crate::keys::Key;

/// A queue with client-go's operations.
pub(crate) trait Peer: Send + Sync {
    /// A key that was handed out.
    type Held;

    fn new() -> Self;
    /// Takes the key by reference, as Go passes strings; a queue that stores the key clones it.
    fn add(&self, key: &Key);
    /// Blocks the thread; returns `None` once the queue is shut down and empty.
    fn get(&self) -> Option<Self::Held>;
    fn key(held: &Self::Held) -> &Key;
    fn done(&self, held: Self::Held);
    fn shut_down(&self);
}

impl Peer for Queue<Key> {
    type Held = Lease<Key>;

    fn new() -> Self {
        Self::new()
    }

    fn add(&self, key: &Key) {
        self.add_ref(key).expect("open");
    }

    fn get(&self) -> Option<Lease<Key>> {
        self.blocking_get()
    }

    fn key(held: &Lease<Key>) -> &Key {
        held.key()
    }

    fn done(&self, held: Lease<Key>) {
        held.done();
    }

    fn shut_down(&self) {
        self.shut_down();
    }
}

impl Peer for NaivePort<Key> {
    type Held = Key;

    fn new() -> Self {
        Self::new()
    }

    fn add(&self, key: &Key) {
        self.add(key.clone());
    }

    fn get(&self) -> Option<Key> {
        self.get()
    }

    fn key(held: &Key) -> &Key {
        held
    }

    fn done(&self, held: Key) {
        self.done(&held);
    }

    fn shut_down(&self) {
        self.shut_down();
    }
}
