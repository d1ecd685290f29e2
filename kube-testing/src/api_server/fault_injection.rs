//! SHELL. Injects faults; [`Faults`](super::faults::Faults) are guarded by the server's lock.

use std::time::Duration;

use kube::Resource;
use kube::core::Status;

use super::ApiServer;
use super::faults::Failure;
use crate::request_matcher::RequestMatcher;
use crate::state::watch::{End, Watch};

/// Faults.
impl ApiServer {
    /// Answers the next `times` of these requests with this status, and does not carry them out. Where several faults match a request, the
    /// one that was injected first applies.
    pub fn fail_next(&self, requests: RequestMatcher, times: u32, status: Status) {
        self.inject(Failure { requests, left: times, status, carried_out: false });
    }

    /// Carries out the next `times` of these requests, and answers them with this status all the same: the client does not learn that its request
    /// succeeded.
    pub fn fail_response_next(&self, requests: RequestMatcher, times: u32, status: Status) {
        self.inject(Failure { requests, left: times, status, carried_out: true });
    }

    fn inject(&self, failure: Failure) {
        if failure.left > 0 {
            self.0.inner.lock().faults.failures.push(failure);
        }
    }

    /// Answers none of these requests before [`resume`](Self::resume). Open watches go on.
    pub fn hang(&self, requests: RequestMatcher) {
        self.0.inner.lock().faults.hanging.push(requests);
    }

    /// Ends every [`hang`](Self::hang): the requests that wait are answered.
    pub fn resume(&self) {
        self.0.inner.lock().faults.hanging.clear();
        self.0.resumed.notify_waiters();
    }

    /// Answers these requests after this long from now on; zero removes the latency that was set with an equal matcher.
    pub fn set_latency(&self, requests: RequestMatcher, latency: Duration) {
        let latencies = &mut self.0.inner.lock().faults.latencies;
        latencies.retain(|(other, _)| *other != requests);
        if !latency.is_zero() {
            latencies.push((requests, latency));
        }
    }

    /// Ends all open watches without an error, as a real server does when their time is over. Events that were not sent yet are lost to them: the
    /// next watch has to ask for them.
    pub fn close_watches(&self) {
        self.each_watch(|watch| watch.ended = Some(End::Closed));
    }

    /// Ends the open watches of one kind, as [`close_watches`](Self::close_watches) ends all.
    ///
    /// # Panics
    /// If the kind is not registered.
    #[track_caller]
    pub fn close_watches_of<K: Resource<DynamicType: Default>>(&self) {
        self.change(|inner| {
            let kind_id = inner.kind_id::<K>();
            let watches = inner.state.watches.living().filter(|watch| watch.kind_id == kind_id);
            watches.for_each(|watch| watch.ended = Some(End::Closed));
        });
    }

    /// Breaks the connections of all open watches: their streams end with an error.
    pub fn break_watches(&self) {
        self.each_watch(|watch| watch.ended = Some(End::Broken));
    }

    /// Sends nothing on the open watches any more, and does not end them: connections that died unnoticed. New watches work.
    pub fn stall_watches(&self) {
        self.each_watch(|watch| watch.stalled = true);
    }

    /// Sends a bookmark on all open watches that allow bookmarks.
    pub fn send_bookmarks(&self) {
        self.each_watch(|watch| watch.bookmark_due = watch.bookmarks);
    }

    /// Forgets the history: watches from an earlier version, and lists that continue one, are answered with 410. Open watches go on.
    pub fn compact(&self) {
        self.change(|inner| inner.state.compact());
    }

    /// Refuses every connection, and breaks open ones, until [`accept_connections`](Self::accept_connections). Objects and history are kept.
    pub fn refuse_connections(&self) {
        self.0.inner.lock().faults.refuses_connections = true;
        self.break_watches();
        self.0.resumed.notify_waiters();
    }

    /// Ends [`refuse_connections`](Self::refuse_connections).
    pub fn accept_connections(&self) {
        self.0.inner.lock().faults.refuses_connections = false;
    }

    fn each_watch(&self, change: impl FnMut(&mut Watch)) {
        self.change(|inner| inner.state.watches.living().for_each(change));
    }
}
