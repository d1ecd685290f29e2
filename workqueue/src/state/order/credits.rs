//! PURE. Decides which level is served next: the highest one, unless a lower level is owed its share.
//!
//! A level is *lower* while a higher level also has Ready keys. A hand-out is *regular* if it is from the highest level with Ready keys.
//!
//! # Invariants
//! 1. At a regular hand-out each lower level that has Ready keys earns one credit. A level loses its credits when it is served, and at each hand-out
//!    at which it has no Ready key.
//! 2. A level with `share` credits is owed a hand-out. If levels are owed a hand-out, the one with the smallest `since` is served next, even if it
//!    has become the highest level. If no level is owed a hand-out, the highest level is served next.
//!
//! # Bounds
//! In each bound, L is the number of levels that are lower at one or more of the hand-outs that the bound counts.
//!
//! *A level X that is lower and has Ready keys is served within share + L hand-outs.* Each regular hand-out from another level gives X a credit, so
//! after `share` of them X is owed a hand-out. Before X is served, each other level Y gets at most one owed hand-out: after it, Y has no credits and
//! a larger `since` than X, and whenever Y earns a credit, X earns one, too. So Y gets no second owed hand-out before X is served. If Y has become
//! the highest level before it gets its owed hand-out, that hand-out is also regular. Either it is one of the `share` regular hand-outs and already
//! counted, or those hand-outs were from levels above Y. In the second case Y was lower at that time and counts in L. So at most share + L − 1
//! hand-outs come before that of X.
//!
//! *Hence a key with n keys before it at its level is handed out within (share + L) · (n + 1) hand-outs*: each time the level is served, one of these
//! keys is handed out, and no key is inserted before them.
//!
//! *The first key of the highest level waits for at most one key of each lower level*: until that key is handed out, no hand-out is regular, so a
//! lower level that has been served does not earn new credits.
//!
//! Rejected: credits for owed hand-outs. With more than `share` lower levels, each of them would earn at least `share` credits between two of its own
//! hand-outs, from the owed hand-outs of the others alone. Some lower level would always be owed a hand-out, and the highest level would never be
//! served.

use std::num::NonZeroU32;

/// The credits of all levels. Levels are identified by their index; the highest level has index 0.
#[derive(Clone, Debug)]
pub(super) struct Credits {
    share: Option<NonZeroU32>,
    hand_outs: u64,
    levels: Vec<LevelCredits>,
}

#[derive(Clone, Copy, Debug)]
struct LevelCredits {
    credits: u32,
    /// The number of the last hand-out after which the level had no credits.
    since: u64,
}

impl Credits {
    /// Creates the credits. Without a share, lower levels are never owed a hand-out.
    pub(super) fn new(share: Option<NonZeroU32>) -> Self {
        Self { share, hand_outs: 0, levels: Vec::new() }
    }

    /// Inserts a new level at this index.
    pub(super) fn insert(&mut self, level: usize) {
        self.levels.insert(level, LevelCredits { credits: 0, since: self.hand_outs });
    }

    /// Returns the level to serve next, which is one of those that have Ready keys.
    #[inline]
    pub(super) fn next(&self, is_ready: impl Fn(usize) -> bool) -> Option<usize> {
        let levels = self.levels.len();
        let highest = (0..levels).find(|level| is_ready(*level))?;
        let Some(share) = self.share else { return Some(highest) };
        let owed =
            (highest..levels).filter(|&level| self.levels[level].credits >= share.get() && is_ready(level));
        Some(owed.min_by_key(|&level| self.levels[level].since).unwrap_or(highest))
    }

    /// Updates the credits after a hand-out from level `served`. `is_ready` returns whether a level had Ready keys before the hand-out.
    #[inline]
    pub(super) fn on_hand_out(&mut self, served: usize, is_ready: impl Fn(usize) -> bool) {
        if self.share.is_none() {
            return;
        }
        self.hand_outs += 1;
        let regular = !(0..served).any(&is_ready);
        for (level, own) in self.levels.iter_mut().enumerate() {
            if level == served || !is_ready(level) {
                *own = LevelCredits { credits: 0, since: self.hand_outs };
            } else if regular {
                own.credits = own.credits.saturating_add(1);
            }
        }
    }

    pub(super) fn check(&self, levels: usize) -> Result<(), String> {
        if self.levels.len() != levels {
            return Err(format!("credits: {} of {levels}", self.levels.len()));
        }
        match self.levels.iter().find(|level| level.since > self.hand_outs) {
            Some(level) => Err(format!("credits 1: {level:?} after {}", self.hand_outs)),
            None => Ok(()),
        }
    }
}
