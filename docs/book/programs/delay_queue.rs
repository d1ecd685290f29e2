//! Expires sessions, with a `Queue` that has a timer.

use std::time::Duration;

use flyball_workqueue::{AddError, AddOptions, DelayMode, Queue, TokioTimer};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AddError<&'static str>> {
    tokio::time::pause(); // tokio's clock jumps to the next deadline when all tasks wait
    let (start, ms) = (Instant::now(), Duration::from_millis);

    let sessions = Queue::builder().timer(TokioTimer::current()).build();
    sessions.add_after("ann", ms(10))?;
    sessions.add_after("bob", ms(20))?;
    sessions.add_after("cleo", ms(30))?;

    sessions.add_with("ann", AddOptions { delay: ms(40), mode: DelayMode::Replace, ..AddOptions::default() })?; // ann has sent a request
    sessions.cancel(&"bob"); // bob has logged out; returns `false` if the key is gone

    while sessions.stats().waiting > 0 {
        let Some(lease) = sessions.get().await else { break };
        println!("{} expired after {} ms", *lease, start.elapsed().as_millis());
        lease.done();
    }
    println!("no session is left");
    Ok(())
}
