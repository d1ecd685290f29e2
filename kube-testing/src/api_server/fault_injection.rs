//! SHELL. What the server can be told to do wrong.

use std::time::Duration;

use kube::Resource;
use kube::core::Status;

use crate::api_server::ApiServer;
use crate::api_server::faults::Failing;
use crate::request_matcher::Call;
use crate::state::watch::{End, Watch};

/// What goes wrong.
impl ApiServer {
    /// The next `times` requests that are meant are not carried out, but answered with this status. Of several such orders the
    /// first that is meant counts.
    pub fn fail_next(&self, call: Call, times: u32, status: Status) {
        self.order_failing(Failing { call, left: times, status, done: false });
    }

    /// The next `times` requests that are meant are carried out, and answered with this status all the same: what a client sees
    /// whose answer was lost on the way.
    pub fn mislead_next(&self, call: Call, times: u32, status: Status) {
        self.order_failing(Failing { call, left: times, status, done: true });
    }

    fn order_failing(&self, failing: Failing) {
        if failing.left > 0 {
            self.0.inner.lock().faults.failing.push(failing);
        }
    }

    /// Requests that are meant are not answered until [`thaw`](Self::thaw). Watches that are open go on.
    pub fn freeze(&self, call: Call) {
        self.0.inner.lock().faults.frozen.push(call);
    }

    /// Ends every [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.0.inner.lock().faults.frozen.clear();
        self.0.thaw.notify_waiters();
    }

    /// From now on, requests that are meant take so long; none with zero.
    pub fn slow(&self, call: Call, delay: Duration) {
        let slow = &mut self.0.inner.lock().faults.slow;
        slow.retain(|(slowed, _)| *slowed != call);
        if !delay.is_zero() {
            slow.push((call, delay));
        }
    }

    /// Ends all open watches as a real server does when their time is over: without an error. What they were not told yet they
    /// have to ask for.
    pub fn cut_watches(&self) {
        self.each_watch(|watch| watch.ended = Some(End::Closed));
    }

    /// Ends the open watches of one kind, as [`cut_watches`](Self::cut_watches) ends all.
    ///
    /// # Panics
    /// If the kind is not registered.
    #[track_caller]
    pub fn cut_watches_of<K: Resource<DynamicType: Default>>(&self) {
        self.change(|inner| {
            let place = inner.place::<K>();
            let watches = inner.state.watches.living().filter(|watch| watch.place == place);
            watches.for_each(|watch| watch.ended = Some(End::Closed));
        });
    }

    /// Breaks the connections of all open watches.
    pub fn break_watches(&self) {
        self.each_watch(|watch| watch.ended = Some(End::Broken));
    }

    /// Open watches say nothing any more, and do not end: connections that died without a word. New ones are sound.
    pub fn silence_watches(&self) {
        self.each_watch(|watch| watch.silent = true);
    }

    /// Tells all open watches that allow it how far they are.
    pub fn send_bookmarks(&self) {
        self.each_watch(|watch| watch.bookmark_due = watch.bookmarks);
    }

    /// Forgets the history: watches from a version before now, and lists that go on from one, are answered with 410. Open watches
    /// go on.
    pub fn compact(&self) {
        self.change(|inner| inner.state.compact());
    }

    /// Refuses every connection, and breaks those that are open, until [`start`](Self::start). Nothing is lost.
    pub fn stop(&self) {
        self.0.inner.lock().faults.down = true;
        self.break_watches();
        self.0.thaw.notify_waiters();
    }

    /// Ends [`stop`](Self::stop).
    pub fn start(&self) {
        self.0.inner.lock().faults.down = false;
    }

    fn each_watch(&self, order: impl FnMut(&mut Watch)) {
        self.change(|inner| inner.state.watches.living().for_each(order));
    }
}
