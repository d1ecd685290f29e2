//! EDGE. The steps of a check. Each step changes objects, and compares the responses of the source with the expected ones.
//!
//! Cancel safety: if the future of a step is dropped, the changes that it has made so far stay in the source.

use std::time::Duration;

use flyball_sync::Timer;

use super::follow::{Applied, Follow, Objects, request, until};
use super::{SourceFixture, SourceRule, SourceViolation};
use crate::{
    ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchStream,
};

type Checked<R> = Result<R, SourceViolation>;

/// The maximum number of pages of a list; no list has more than ten objects. If a list has more pages than this, for example because its
/// continuations lead back to an earlier page, the source breaks [`SourceRule::Pages`].
const MOST_PAGES: usize = 100;

pub(super) struct Check<'a, F: SourceFixture, T> {
    pub(super) fixture: &'a mut F,
    pub(super) timer: T,
    pub(super) patience: Duration,
}

/// A complete list.
pub(super) struct Listed<K> {
    objects: Objects<K>,
    version: Version,
}

fn violation<R>(rule: SourceRule, detail: impl Into<String>) -> Checked<R> {
    Err(SourceViolation::new(rule, detail))
}

impl<F: SourceFixture, T: Timer> Check<'_, F, T> {
    /// Checks a list of four objects.
    pub(super) async fn lists(&mut self) -> Checked<Listed<F::Key>> {
        for number in 0..4 {
            self.fixture.put(number).await;
        }
        let listed = self.list(ListVersion::MostRecent, SourceRule::List).await?;
        self.has(&listed.objects, &[0, 1, 2, 3], SourceRule::List)?;
        if let Some((key, version)) = listed.objects.iter().find(|(_, version)| **version > listed.version) {
            let detail = format!("{key:?} has version {version}, and the list {}", listed.version);
            return violation(SourceRule::List, detail);
        }
        Ok(listed)
    }

    /// Checks a paged list. Objects change between the first page and the second.
    pub(super) async fn pages(&mut self, before: Listed<F::Key>) -> Checked<Listed<F::Key>> {
        let rule = SourceRule::Pages;
        let mut page =
            self.page(ListVersion::MostRecent, Some(2), None).await.or_else(|error| failed(rule, &error))?;
        self.fixture.put(0).await;
        self.fixture.put(3).await;
        self.fixture.put(4).await;
        self.fixture.delete(1).await;
        let (version, mut objects) = (page.version, self.objects(&page.items));
        for _ in 0..MOST_PAGES {
            let Some(continuation) = page.continuation.filter(|token| !token.is_empty()) else {
                if objects != before.objects {
                    let detail =
                        format!("after changes between pages {objects:?}, before {:?}", before.objects);
                    return violation(rule, detail);
                }
                return Ok(before);
            };
            page = match self.page(ListVersion::MostRecent, Some(2), Some(continuation)).await {
                Err(error) if error.kind() == SourceErrorKind::Expired => return Ok(before),
                other => other.or_else(|error| failed(rule, &error))?,
            };
            if page.version != version {
                return violation(rule, format!("a page has version {}, not {version}", page.version));
            }
            objects.extend(self.objects(&page.items));
        }
        violation(rule, format!("more than {MOST_PAGES} pages of at most 5 objects"))
    }

    /// Checks that later lists show the changes that [`pages`](Self::pages) made.
    pub(super) async fn freshness(&mut self, before: Listed<F::Key>) -> Checked<Listed<F::Key>> {
        let rule = SourceRule::Freshness;
        let listed = self.list(ListVersion::MostRecent, rule).await?;
        self.has(&listed.objects, &[0, 2, 3, 4], rule)?;
        for number in [0, 3] {
            let key = self.fixture.key(number);
            let (old, new) = (before.objects.get(&key).copied(), listed.objects.get(&key).copied());
            if new <= old {
                let detail = format!("{key:?} was changed, and went from {old:?} to {new:?}");
                return violation(SourceRule::GrowingVersions, detail);
            }
        }
        let again = self.list(ListVersion::NotOlderThan(listed.version), rule).await?;
        if again.version < listed.version || again.objects != listed.objects {
            let detail = format!("requested {} or later, received {}", listed.version, again.version);
            return violation(rule, detail);
        }
        Ok(listed)
    }

    /// Makes several changes, one at a time, and checks that the watch delivers each change before the next one is made.
    pub(super) async fn one_change_at_a_time(&mut self, listed: Listed<F::Key>) -> Checked<()> {
        let mut follow = Follow::new(self.fixture.schema(), listed.objects, listed.version);
        for (number, deletion) in [(0, false), (5, false), (2, true), (2, false), (4, true)] {
            match deletion {
                true => self.fixture.delete(number).await,
                false => self.fixture.put(number).await,
            }
            self.expect(&mut follow, number, deletion).await?;
        }
        Ok(())
    }

    /// Waits for the event of one change.
    async fn expect(
        &self,
        follow: &mut Follow<F::Key, F::Source>,
        number: u32,
        deletion: bool,
    ) -> Checked<()> {
        let key = self.fixture.key(number);
        let missing = if deletion { SourceRule::Deletions } else { SourceRule::EveryChange };
        let deadline = self.timer.now() + self.patience;
        let mut old = false;
        loop {
            let next = follow.next(self.fixture.source(), &self.timer, deadline).await;
            let Some(event) = next.or_else(|error| failed(missing, &error))? else {
                let done = if deletion { "deleted" } else { "changed" };
                return match old {
                    true => violation(
                        SourceRule::GrowingVersions,
                        format!("{key:?} was {done}, and its event is not newer than the known state"),
                    ),
                    false => violation(missing, format!("{key:?} was {done}, and no event came")),
                };
            };
            let applied = follow.apply(&event)?;
            if follow.key(&event).as_ref() != Some(&key) {
                continue;
            }
            match applied {
                Applied::News if matches!(event, WatchEvent::Deleted(_)) == deletion => return Ok(()),
                Applied::News => {}
                _ => old = true,
            }
        }
    }

    /// Makes several changes, then opens a watch from a version before these changes, and checks that it leads to the current state.
    pub(super) async fn changes_between_watches(&mut self) -> Checked<()> {
        let listed = self.list(ListVersion::MostRecent, SourceRule::List).await?;
        self.fixture.put(6).await;
        self.fixture.delete(3).await;
        self.fixture.put(0).await;
        self.fixture.put(0).await;
        self.fixture.put(6).await;
        let follow = Follow::new(self.fixture.schema(), listed.objects, listed.version);
        self.arrives(follow, SourceRule::EveryChange).await
    }

    /// Drops a watch after its first event, and checks that a second watch continues after this event, and that a watch from the version before it
    /// delivers it again: an informer resumes an interrupted watch there, because several changes may have the version of the event.
    pub(super) async fn resumption(&mut self) -> Checked<()> {
        let listed = self.list(ListVersion::MostRecent, SourceRule::List).await?;
        let mut follow = Follow::new(self.fixture.schema(), listed.objects.clone(), listed.version);
        self.fixture.put(0).await;
        self.fixture.put(7).await;
        self.fixture.delete(2).await;
        let deadline = self.timer.now() + self.patience;
        loop {
            let next = follow.next(self.fixture.source(), &self.timer, deadline).await;
            match next.or_else(|error| failed(SourceRule::EveryChange, &error))? {
                None => return violation(SourceRule::EveryChange, "three changes, and no event"),
                Some(event) if follow.apply(&event)? == Applied::News => break,
                Some(_) => {}
            }
        }
        follow.interrupt();
        let before = Version::new(follow.position.get().saturating_sub(1));
        self.arrives(follow, SourceRule::Resume).await?;
        if before < listed.version {
            return Ok(()); // the event has no version
        }
        self.arrives(Follow::new(self.fixture.schema(), listed.objects, before), SourceRule::Resume).await
    }

    /// Opens a watch from a version whose history the source has dropped, and checks that the watch expires or still leads to the current state.
    pub(super) async fn expiry(&mut self) -> Checked<()> {
        let rule = SourceRule::Expiry;
        let listed = self.list(ListVersion::MostRecent, SourceRule::List).await?;
        let mut follow = Follow::new(self.fixture.schema(), listed.objects, listed.version);
        self.fixture.put(0).await;
        self.fixture.delete(6).await;
        self.fixture.compact().await;
        self.fixture.put(8).await;
        let truth = self.list(ListVersion::MostRecent, rule).await?;
        let deadline = self.timer.now() + self.patience;
        while follow.known != truth.objects {
            match follow.next(self.fixture.source(), &self.timer, deadline).await {
                Ok(Some(event)) => _ = follow.apply(&event)?,
                Err(error) if error.kind() == SourceErrorKind::Expired => break,
                Err(error) => return failed(rule, &error),
                Ok(None) => {
                    let detail = format!("it led to {:?}, not to {:?}", follow.known, truth.objects);
                    return violation(rule, detail);
                }
            }
        }
        // A watch from the version of the new list must work again.
        let mut follow = Follow::new(self.fixture.schema(), truth.objects, truth.version);
        self.fixture.put(9).await;
        self.expect(&mut follow, 9, false).await
    }

    /// Checks that a watch without events stays open.
    pub(super) async fn end_of_watch(&mut self) -> Checked<()> {
        let rule = SourceRule::EndOfWatch;
        if self.fixture.source().is_polling() {
            return Ok(());
        }
        let listed = self.list(ListVersion::MostRecent, SourceRule::List).await?;
        let deadline = self.timer.now() + self.patience / 4;
        let Some(opened) =
            until(&self.timer, deadline, self.fixture.source().watch(request(listed.version))).await
        else {
            return violation(rule, "the watch did not open in time");
        };
        let mut watch = opened.or_else(|error| failed(rule, &error))?;
        loop {
            match until(&self.timer, deadline, watch.next()).await {
                None => return Ok(()),
                Some(None) => return violation(rule, "it ended early, and the source does not poll"),
                Some(Some(Err(error))) => return failed(rule, &error),
                Some(Some(Ok(_))) => {}
            }
        }
    }

    /// Follows the watch until the known objects are the same as those of a list.
    async fn arrives(&self, mut follow: Follow<F::Key, F::Source>, rule: SourceRule) -> Checked<()> {
        let truth = self.list(ListVersion::MostRecent, SourceRule::List).await?.objects;
        let deadline = self.timer.now() + self.patience;
        while follow.known != truth {
            let next = follow.next(self.fixture.source(), &self.timer, deadline).await;
            match next.or_else(|error| failed(rule, &error))? {
                Some(event) => _ = follow.apply(&event)?,
                None => {
                    let detail = format!("it led to {:?}, not to {truth:?}", follow.known);
                    return violation(rule, detail);
                }
            }
        }
        Ok(())
    }

    async fn list(&self, min_version: ListVersion, rule: SourceRule) -> Checked<Listed<F::Key>> {
        let mut page = self.page(min_version, None, None).await.or_else(|error| failed(rule, &error))?;
        let (version, mut objects) = (page.version, self.objects(&page.items));
        for _ in 0..MOST_PAGES {
            let Some(continuation) = page.continuation.filter(|token| !token.is_empty()) else {
                return Ok(Listed { objects, version });
            };
            let next = self.page(ListVersion::MostRecent, None, Some(continuation)).await;
            page = next.or_else(|error| failed(rule, &error))?;
            objects.extend(self.objects(&page.items));
        }
        violation(SourceRule::Pages, format!("more than {MOST_PAGES} pages without a limit"))
    }

    async fn page(
        &self,
        min_version: ListVersion,
        limit: Option<u32>,
        continuation: Option<String>,
    ) -> Result<Page<<F::Source as Source>::Object>, SourceError> {
        let request = ListRequest { min_version, limit, continuation };
        let deadline = self.timer.now() + self.patience;
        let answer = until(&self.timer, deadline, self.fixture.source().list(request)).await;
        answer.unwrap_or_else(|| Err(SourceError::new(SourceErrorKind::Other, "no answer in time")))
    }

    fn objects(&self, items: &[<F::Source as Source>::Object]) -> Objects<F::Key> {
        let schema = self.fixture.schema();
        items.iter().map(|object| (schema.key(object), schema.version(object))).collect()
    }

    /// Checks that `objects` contains exactly the objects with these numbers.
    fn has(&self, objects: &Objects<F::Key>, numbers: &[u32], rule: SourceRule) -> Checked<()> {
        let mut expected: Vec<F::Key> = numbers.iter().map(|number| self.fixture.key(*number)).collect();
        expected.sort();
        if objects.keys().ne(&expected) {
            let listed: Vec<_> = objects.keys().collect();
            return violation(rule, format!("the list has {listed:?}, not {expected:?}"));
        }
        Ok(())
    }
}

fn failed<R>(rule: SourceRule, error: &SourceError) -> Checked<R> {
    violation(rule, format!("the request failed: {error}"))
}
