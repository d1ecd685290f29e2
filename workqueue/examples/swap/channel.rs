//! A simple replacement for the queue: a tokio channel, and a sleeping task for each delay. It neither coalesces keys nor prevents a key from running
//! twice at the same time. The generic worker can still use it.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::traits::{AsyncGet, KeyQueue};

/// `None` closes the channel: a worker that receives it sends it again for the next worker, and ends.
pub(crate) struct Channel {
    sender: UnboundedSender<Option<u32>>,
    receiver: Mutex<UnboundedReceiver<Option<u32>>>,
}

impl Channel {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver: Mutex::new(receiver) }
    }

    pub(crate) fn close(&self) {
        let _ = self.sender.send(None);
    }
}

impl KeyQueue for Channel {
    type Leased = u32;

    fn add(&self, key: u32) {
        let _ = self.sender.send(Some(key));
    }

    fn add_after(&self, key: u32, delay: Duration) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let _ = sender.send(Some(key));
        });
    }

    fn key(&self, leased: &u32) -> u32 {
        *leased
    }

    fn succeed(&self, _: u32) {}

    fn retry(&self, key: u32) {
        self.add(key);
    }
}

impl AsyncGet for Channel {
    async fn get(&self) -> Option<u32> {
        // `lock` and `recv` are both cancel-safe.
        let key = self.receiver.lock().await.recv().await.flatten();
        if key.is_none() {
            self.close();
        }
        key
    }
}
