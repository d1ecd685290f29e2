//! EDGE. Whether the server was unreachable since the last watch was opened. If so, it may have been restored from a backup.
//!
//! A server that was restored has lower versions than its caches. It refuses a list "not older than" such a version, but accepts a watch from it: the
//! watch is silent until the server has reached the version again, which may take hours, and then begins in the middle of another history. So after
//! an outage the current version is requested before a watch. client-go and kube-runtime do not do this.

use std::sync::Arc;

use flyball_informer_cache::Version;
use flyball_sync::locks::{AtomicBool, Ordering};
use kube::core::Status;
use kube::core::response::reason;

use crate::source::api_error::is_connection_lost;

#[derive(Clone, Debug, Default)]
pub(super) struct Outage(Arc<AtomicBool>);

impl Outage {
    /// Called when the connection of a watch was lost.
    pub(super) fn begin(&self) {
        // Ordering: Relaxed, because the flag publishes no other memory, and the informer polls one future of the source after the other.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Called when a list was answered: the next watch begins from a version that the server has reached.
    pub(super) fn end(&self) {
        // Ordering: Relaxed, see `begin`.
        self.0.store(false, Ordering::Relaxed);
    }

    /// Returns the answer unchanged. Begins an outage if there was none, or if the server, or a proxy before it, failed.
    pub(super) fn noticed<T>(&self, answer: Result<T, kube::Error>) -> Result<T, kube::Error> {
        answer.inspect_err(|error| match error {
            // 504 is the answer of a server that has not reached a version.
            kube::Error::Api(status) if status.code >= 500 && status.code != 504 => self.begin(),
            kube::Error::Api(_) => {}
            error if is_connection_lost(error) => self.begin(),
            _ => {}
        })
    }

    /// After an outage, compares the version from which a watch is about to begin with the `current` version of the server.
    ///
    /// # Errors
    /// Returns the error of a server that has not reached the version, or the error of a server that did not answer. If the server refuses to answer,
    /// for example because lists are forbidden, the watch is opened as it would be without an outage.
    pub(super) async fn check(
        &self,
        from: Version,
        current: impl AsyncFnOnce() -> Result<Version, kube::Error>,
    ) -> Result<(), kube::Error> {
        // Ordering: Relaxed, see `begin`.
        if from == Version::ZERO || !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let newest = match self.noticed(current().await) {
            Ok(newest) => newest,
            Err(kube::Error::Api(status)) if status.code < 500 => from,
            Err(error) => return Err(error),
        };
        self.end();
        if newest >= from {
            return Ok(());
        }
        let message = format!("Too large resource version: {from}, current: {newest}");
        Err(kube::Error::Api(Status::failure(&message, reason::TIMEOUT).with_code(504).boxed()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use flyball_sync::block_on;

    use super::*;

    fn refused(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("refused", "").with_code(code).boxed())
    }

    fn unreachable() -> kube::Error {
        kube::Error::Service(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)))
    }

    #[test]
    fn the_version_is_requested_once_after_each_outage() {
        let (outage, requests) = (Outage::default(), Cell::new(0));
        let check = |from: u64| {
            block_on(outage.check(Version::new(from), async || {
                requests.set(requests.get() + 1);
                Ok(Version::new(7))
            }))
        };
        assert!(check(7).is_ok());
        for error in [refused(429), refused(504), refused(410)] {
            outage.noticed(Err::<(), _>(error)).unwrap_err();
            assert!(check(7).is_ok());
        }
        assert_eq!(requests.get(), 0, "no outage");
        for error in [refused(503), refused(500), unreachable()] {
            outage.noticed(Err::<(), _>(error)).unwrap_err();
            assert!(check(7).is_ok() && check(7).is_ok());
        }
        outage.begin();
        assert!(check(0).is_ok(), "a watch of everything begins at any version");
        assert!(check(7).is_ok());
        outage.begin();
        outage.end();
        assert!(check(7).is_ok());
        assert_eq!(requests.get(), 4);
    }

    #[test]
    fn a_version_that_the_server_has_not_reached_is_too_large() {
        let outage = Outage::default();
        outage.begin();
        let error = block_on(outage.check(Version::new(8), async || Ok(Version::new(7)))).unwrap_err();
        let error = crate::ApiError::from(kube::runtime::watcher::Error::WatchStartFailed(error));
        assert_eq!(error.kind(), flyball_informer_cache::SourceErrorKind::VersionTooLarge);
    }

    #[test]
    fn a_server_that_refuses_lists_is_watched_and_one_that_fails_is_asked_again() {
        let outage = Outage::default();
        outage.begin();
        for error in [refused(503), unreachable()] {
            let mut error = Some(error);
            let failed = outage.check(Version::new(8), async || Err(error.take().unwrap()));
            assert!(block_on(failed).is_err());
        }
        assert!(block_on(outage.check(Version::new(8), async || Err(refused(403)))).is_ok());
        let ended = outage.check(Version::new(8), async || unreachable!("the outage has ended"));
        assert!(block_on(ended).is_ok());
    }
}
