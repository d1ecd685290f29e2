//! SHELL. The stage `Finding` of a publication: finds the effects of the writes on each subscription, in pieces. This module guards no data.

use std::hash::Hash;
use std::sync::Arc;

use super::{Publication, Stage};
use crate::changes::buffer::SubscriptionBuffer;
use crate::changes::subscribers::SubscriptionBuffers;
use crate::table::Rows;
use crate::table::relist::UNCHANGED;

impl<K: Eq + Hash, V: 'static> Publication<K, V> {
    /// Performs a piece of the stage `Finding`, and returns the number of keys in the piece.
    pub(super) fn find(&mut self, most: usize) -> usize {
        if self.buffer == 0 {
            return self.find_selecting(most);
        }
        let place = self.buffer - 1;
        let Some(buffer) = self.buffers.all.get(place).cloned() else {
            self.searches = 1;
            self.enter(Stage::Committing);
            return 0;
        };
        let part = self.part(self.writes.len(), most);
        let (done, is_last) = (part.len().max(1), part.end == self.writes.len());
        self.findings.find((place, &buffer), &self.writes, part);
        if is_last {
            (self.buffer, self.at) = (self.buffer + 1, 0);
        }
        done
    }

    /// Finds the effects on the subscriptions with a selection, or only on those that were added late, in pieces.
    fn find_selecting(&mut self, most: usize) -> usize {
        if self.searches == 0 {
            let Self { findings, buffers, writes, base, .. } = self;
            let (next, done) = match buffers.has_selecting() {
                true => findings.find_selecting(buffers, writes, self.at, base, most),
                false => (writes.len(), 0),
            };
            (self.buffer, self.at) = if next == self.writes.len() { (1, 0) } else { (0, next) };
            return done;
        }
        let Some(late) = self.late.last().cloned() else {
            self.searches = self.searches.saturating_add(1);
            self.enter(Stage::Committing);
            return 0;
        };
        let is_repeated = self.searches > 1;
        let (done, is_last) = self.find_for_late(&late, if is_repeated { usize::MAX } else { most });
        if is_last {
            self.at = 0;
            drop(self.late.pop());
        }
        if is_repeated { 0 } else { done }
    }

    /// Finds the effect on a subscription that was added late, in pieces. Only the rows that it selects in the former or in the new table can concern it.
    /// Returns the number of keys in the piece, and whether it is the last one.
    fn find_for_late(&mut self, late: &Arc<SubscriptionBuffer<K, V>>, most: usize) -> (usize, bool) {
        let (Some(selection), Some(next)) = (late.selection(), &self.next) else { return (1, true) };
        let (before, after) = (selection.rows(&self.base), selection.rows(next));
        let passes = [
            (&before, &self.deleted_by, false),
            (&before, &self.stored_by, false),
            (&after, &self.stored_by, true),
        ];
        let (mut seen, mut found, mut at) = (0, 0, self.at);
        for (rows, written_by, adds) in passes {
            while let Some(row) = rows.as_ref().and_then(|rows| rows.get(at)) {
                // A row without a write costs less than one with a write.
                if seen / UNCHANGED + found >= most {
                    return (most, false);
                }
                (at, self.at, seen) = (at + 1, self.at + 1, seen + 1);
                if let Some(place) = written_by.get(row).checked_sub(1) {
                    found += 1;
                    let write = (place as usize, &self.writes[place as usize]);
                    // In the second pass, the write may have added another object in the row of one that was deleted.
                    self.findings.find_one(late, write, &self.base, |is_new| is_new == adds);
                }
            }
            at -= rows.as_ref().map_or(0, Rows::len);
        }
        ((seen / UNCHANGED + found).max(1), true)
    }

    /// Prepares the stage `Finding` for the list `now` of subscriptions, which has replaced `self.buffers`. A new subscription to all objects has no
    /// pending change, so there is nothing to be found for it. O(subscriptions without a selection, and those with one that were added or removed).
    ///
    /// A program that adds subscriptions all the time does not keep the list from being committed, however many there are and however long the list is: a
    /// new subscription with a selection takes O(objects that it selects), as it does to subscribe; and the new ones of the second time and later are
    /// processed in one piece, which the commit follows.
    pub(super) fn find_late(&mut self, now: &SubscriptionBuffers<K, V>) {
        self.findings.rearrange(&self.buffers, now);
        self.late = now.selecting_since(&self.buffers).cloned().collect();
    }
}
