//! Expires sessions, with tokio-util's `DelayQueue`.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause(); // tokio's clock jumps to the next deadline when all tasks wait
    let (start, ms) = (Instant::now(), Duration::from_millis);

    let mut sessions = DelayQueue::new();
    let ann = sessions.insert("ann", ms(10));
    let bob = sessions.insert("bob", ms(20));
    sessions.insert("cleo", ms(30));

    sessions.reset(&ann, ms(40)); // ann has sent a request
    sessions.remove(&bob); // bob has logged out; panics if the key is gone

    while let Some(expired) = sessions.next().await {
        println!("{} expired after {} ms", expired.into_inner(), start.elapsed().as_millis());
    }
    println!("no session is left");
}
