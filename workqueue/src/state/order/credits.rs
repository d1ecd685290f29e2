//! PURE. Decides which level is served next: the highest, except for the shares of the lower levels.
//!
//! A level is *lower* while a higher one has Ready keys too. A hand-out is *regular* if it is from the highest level with
//! Ready keys.
//!
//! # Invariants
//! 1. At a regular hand-out each lower level that has Ready keys earns one credit. A level has no credits after it was
//!    served, and none if it had no Ready key at the last hand-out.
//! 2. A level with `share` credits is owed a hand-out. Of the levels that are owed one, the one that has gone without for
//!    the longest is next, be it the highest by now or not; if none is, the highest.
//!
//! # Bounds
//! Let L be the number of levels that are lower at some hand-out meanwhile.
//!
//! *A level that is lower and has Ready keys is served within share + L hand-outs.* Each regular hand-out from elsewhere gives
//! it a credit: after `share` of them it is owed a hand-out. Each other level comes before it by being owed one at most
//! once: then it has no credits, and whatever it earns from then on this level earns too, and has gone without for longer. If that level is the
//! highest when it is owed one, the hand-out is regular and one of the `share`, or those have been from levels above it, while it
//! was lower. So at most share + L − 1 come before. *Hence a key with n before it at its level is handed out within
//! (share + L) · (n + 1) hand-outs*, as each time its level is served one before it leaves, and none comes in before it.
//!
//! *The first key of the highest level waits for at most one key of each lower level*: until it is handed out no hand-out
//! is regular, so no level that was served earns a credit.
//!
//! Rejected: a credit for owed hand-outs, too. With as many lower levels as `share` those would serve one another for
//! ever, and the highest never.

use std::num::NonZeroU32;

/// The credits of all levels: a level is an index, 0 is the highest.
#[derive(Clone, Debug)]
pub(super) struct Credits {
    share: Option<NonZeroU32>,
    hand_outs: u64,
    levels: Vec<LevelCredits>,
}

#[derive(Clone, Copy, Debug)]
struct LevelCredits {
    credits: u32,
    /// The last hand-out after which the level had no credits.
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

    /// Returns the level that is served next, among those that have Ready keys.
    #[inline]
    pub(super) fn next(&self, is_ready: impl Fn(usize) -> bool) -> Option<usize> {
        let levels = self.levels.len();
        let highest = (0..levels).find(|level| is_ready(*level))?;
        let Some(share) = self.share else { return Some(highest) };
        let owed =
            (highest..levels).filter(|&level| self.levels[level].credits >= share.get() && is_ready(level));
        Some(owed.min_by_key(|&level| self.levels[level].since).unwrap_or(highest))
    }

    /// Records that level `served` handed out a key. `is_ready` reports which levels had Ready keys before that.
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
