//! EDGE. The run of an election: campaigns for the lease, and runs the work of the leader.
//!
//! Cancel safety: see [`Election::run`].

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::candidate::loss_reason::LossReason;
use crate::driver::Driver;
use crate::election::{Election, ElectionOutcome};
use crate::leadership::Leadership;

impl Election {
    /// Campaigns until this candidate leads, then runs the work, and renews the lease while the work runs. The future completes when the work or the
    /// leadership has ended, or after `stop` completes. After that, the election can be run again. With a [standby](crate::ElectionBuilder::standby), the
    /// work starts immediately.
    ///
    /// [`Leadership::lost`] completes when the leadership is over. The work is dropped a [stop grace](crate::ElectionBuilder::stop_grace) later, before
    /// other candidates can lead, or immediately if the Lease no longer names this candidate. The clock is read immediately before each poll of the work,
    /// so no poll starts after the stop grace, even if the process was stopped in the meantime. [What a lease cannot
    /// prevent](crate#what-a-lease-cannot-prevent) lists the rest, such as requests that were sent and tasks that the work spawned.
    ///
    /// Work that blocks its thread also blocks the renewal of the lease, so the leadership is lost if the work blocks for too long.
    ///
    /// When `stop` completes, a candidate that leads continues to lead and to renew its lease until the work has ended, without a time limit;
    /// [`Leadership::lost`] completes. A candidate that does not lead drops the work of a standby and ends immediately, unless it may hold the lease, for
    /// example because a request that acquires it is open. In that case it waits for the response or reads the Lease, and releases the lease if it holds
    /// it. Each request may take half of the [renew deadline](crate::ElectionBuilder::renew_deadline). A failed release is retried twice, each time a
    /// [retry period](crate::ElectionBuilder::retry_period) after the failed request was sent. For an election that ends only with its work or its
    /// leadership, `stop` is [`std::future::pending()`].
    ///
    /// # Panics
    /// Panics if the work or `stop` panics; the lease is released first.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. The lease is then not released, because a release needs a request, so other candidates wait until the
    /// lease has expired. To release the lease, let the work end or `stop` complete instead.
    pub async fn run<T, F>(
        &mut self,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> ElectionOutcome<T>
    where
        F: Future<Output = T>,
    {
        let (standby, release) = (self.standby, self.release);
        let mut driver = Driver::new(self);
        let term = driver.term.clone();
        let mut stop = pin!(stop);
        let mut stopped = false;
        let mut working = pin!(None);
        let mut work = Some(work);
        let ended = poll_fn(|context| {
            // `stop` is polled first: if it has already completed, no request is sent and the work does not start.
            if !stopped {
                match caught(|| stop.as_mut().poll(context).map(Some)) {
                    Poll::Ready(Some(Err(panic))) => return Poll::Ready(Some(Err(panic))),
                    Poll::Ready(_) => {
                        stopped = true;
                        term.stop();
                    }
                    Poll::Pending => {}
                }
            }
            if stopped && !term.has_begun() {
                return Poll::Ready(None);
            }
            // The driver is polled before the work, because the driver determines whether the work may continue.
            driver.poll(context);
            // The clock is read again, immediately before the work is polled.
            if term.is_over() {
                return Poll::Ready(None);
            }
            caught(|| {
                if (standby || term.has_begun())
                    && let Some(work) = work.take()
                {
                    working.set(Some(work(term.clone())));
                }
                match working.as_mut().as_pin_mut() {
                    Some(work) => work.poll(context).map(Some),
                    None => Poll::Pending,
                }
            })
        })
        .await;
        // Dropping the work may panic, too.
        let dropped = catch_unwind(AssertUnwindSafe(|| working.set(None)));
        let ended = match (ended, dropped) {
            (Some(Err(panic)), _) | (_, Err(panic)) => Some(Err(panic)),
            (ended, Ok(())) => ended,
        };
        driver.end_of_work();

        let led = term.has_begun();
        let leads = term.is_leader();
        term.end();
        if release && (leads || !led) {
            driver.release();
            poll_fn(|context| {
                driver.poll(context);
                if driver.candidate().has_ended() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        let lost = driver.candidate().lost().cloned();
        match (ended, lost) {
            (Some(Err(panic)), _) => resume_unwind(panic),
            (None, _) if !led => ElectionOutcome::Stopped,
            (Some(Ok(output)), None) if leads || !led => ElectionOutcome::Done(output),
            (Some(Ok(output)), lost) => {
                ElectionOutcome::Lost(lost.unwrap_or(LossReason::NotRenewed), Some(output))
            }
            (None, lost) => ElectionOutcome::Lost(lost.unwrap_or(LossReason::NotRenewed), None),
        }
    }
}

/// Converts a panic to a value, because a panic ends the work in the same way as an output.
fn caught<T>(poll: impl FnOnce() -> Poll<Option<T>>) -> Poll<Option<Result<T, Box<dyn Any + Send>>>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(poll) => poll.map(|output| output.map(Ok)),
        Err(panic) => Poll::Ready(Some(Err(panic))),
    }
}
