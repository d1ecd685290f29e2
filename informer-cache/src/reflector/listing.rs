//! PURE. How a reflector lists: the requested version, the pages, and the reaction to a failed list.

use std::collections::BTreeSet;

use flyball_sync::Nanos;

use super::{BackoffCause, EventVerdict, Listing, Reflector, State, Then};
use crate::{ListRequest, ListVersion, SourceErrorKind, Version};

/// The default page size for lists that the source has to read from its storage.
const DEFAULT_PAGE: u32 = 500;

impl Reflector {
    /// Handles a page of a list. If the continuation of the page leads back to an earlier page of the same list, the list fails. O(log pages).
    pub fn page(
        &mut self,
        version: Version,
        continuation: Option<String>,
        now: Nanos,
        random: u64,
    ) -> EventVerdict {
        let State::Listing(listing) = &mut self.state else { return EventVerdict::Ignore };
        let oldest = listing.oldest.map_or(version, |oldest| oldest.min(version));
        let Some(next) = continuation.filter(|token| !token.is_empty()) else {
            self.publish(oldest);
            self.watch(now, random);
            return EventVerdict::Publish(oldest);
        };
        if !listing.continuations.insert(next.clone()) {
            // Without this check, a list whose pages form a cycle would never end.
            self.list_failed_by(BackoffCause::Failed(SourceErrorKind::Other), now, random);
            return EventVerdict::Ignore;
        }
        listing.oldest = Some(oldest);
        listing.continuation = Some(next);
        self.paged |= listing.requested == ListVersion::Any;
        self.deadline = now + self.config.request_timeout;
        EventVerdict::Stage
    }

    /// Reports that a part of the page has arrived. Restarts the [`request_timeout`](crate::ReflectorConfig::request_timeout) for the rest of the
    /// page.
    pub fn page_progressed(&mut self, now: Nanos) {
        if matches!(self.state, State::Listing(_)) {
            self.deadline = now + self.config.request_timeout;
        }
    }

    /// Handles a failed list.
    pub fn list_failed(&mut self, kind: SourceErrorKind, now: Nanos, random: u64) {
        if matches!(self.state, State::Listing(_)) {
            self.list_failed_by(BackoffCause::Failed(kind), now, random);
        }
    }

    /// Requests a list. The first list may have any version; later lists must not be older than the known version. But if the known version is
    /// unusable, or if the first list is configured to be the most recent one, requests the most recent list.
    pub(super) fn list(&mut self, now: Nanos) {
        let requested = match self.version {
            _ if self.unusable => ListVersion::MostRecent,
            Version::ZERO => ListVersion::Any,
            version => ListVersion::NotOlderThan(version),
        };
        self.begin_list(requested, false, now);
    }

    fn begin_list(&mut self, requested: ListVersion, full: bool, now: Nanos) {
        self.deadline = now + self.config.request_timeout;
        self.state = State::Listing(Listing {
            requested,
            full,
            oldest: None,
            continuation: None,
            continuations: BTreeSet::new(),
        });
    }

    pub(super) fn list_request(&self, listing: &Listing) -> ListRequest {
        let from_storage = self.paged || !matches!(listing.requested, ListVersion::NotOlderThan(_));
        let default = (from_storage && !self.config.unpaged).then_some(DEFAULT_PAGE);
        let limit = if listing.full { None } else { self.config.page_size.map(u32::from).or(default) };
        let continuation = listing.continuation.clone();
        let version = if continuation.is_some() { ListVersion::MostRecent } else { listing.requested };
        ListRequest { min_version: version, limit, continuation }
    }

    pub(super) fn list_failed_by(&mut self, cause: BackoffCause, now: Nanos, random: u64) {
        let State::Listing(listing) = &self.state else { return };
        let (requested, full) = (listing.requested, listing.full);
        let version_may_be_unusable =
            matches!(requested, ListVersion::NotOlderThan(_)) && listing.continuation.is_none();
        match cause {
            BackoffCause::Failed(SourceErrorKind::Expired) if listing.continuation.is_some() && !full => {
                self.failures_without_wait += 1;
                self.begin_list(requested, true, now);
            }
            BackoffCause::Failed(SourceErrorKind::Expired | SourceErrorKind::VersionTooLarge)
                if !self.retried =>
            {
                self.retry_most_recent();
                self.list(now);
            }
            _ => {
                // A server that does not have this version yet waits for it, and a client may repeat the request whenever the server gives up. After
                // a restore from a backup, the version never comes.
                self.unusable |= cause == BackoffCause::TimedOut && version_may_be_unusable;
                self.wait(cause, Then::List, now, random);
            }
        }
    }

    pub(super) fn retry_most_recent(&mut self) {
        self.retried = true;
        self.unusable = true;
        self.failures_without_wait += 1;
    }
}
