//! PURE. How many tokens of an unused grant can still be given back.
//!
//! A waiter is granted its tokens when they are due, whether it is polled or not. If it is dropped before it is polled, the tokens go back. To
//! compute how many, compare the bucket with a hypothetical bucket from which these tokens were never taken. The hypothetical bucket becomes full
//! earlier than the real bucket, by the cost of the tokens, *unless* it has already been full since the grant: then it has overflowed, and the
//! overflow is lost. So the number of parts that are given back is the cost or, if it is smaller, the smallest number of parts by which the real
//! bucket was short of full at any change since the grant. A token that was reserved in advance counts as taken when it falls due, so the bucket
//! changes at that time.
//!
//! All grants of a *round* share one `slack`: the smallest number of parts by which the bucket was short of full at any change since the oldest of
//! these grants. So `slack` never exceeds the correct value for any of them. When it reaches zero, the bucket was full at some time, and a new round
//! begins: grants of earlier rounds cannot be given back. So a waiter that is never polled again is tracked only until the bucket is full once.

use std::num::NonZeroU32;

/// The grants whose waiter was not polled yet.
#[derive(Debug)]
pub(crate) struct UnclaimedGrants {
    round: u64,
    /// The number of tokens of the open grants of this round.
    open: u64,
    /// The smallest number of parts by which the bucket was short of full at any change since the oldest grant of this round.
    slack: u128,
}

impl UnclaimedGrants {
    pub(crate) const fn new() -> Self {
        Self { round: 0, open: 0, slack: u128::MAX }
    }

    /// Returns whether a grant might still be given back. While this is the case, the caller must report every change of the bucket, by
    /// [`observe`](Self::observe), [`lower`](Self::lower) or [`end_round`](Self::end_round).
    pub(crate) const fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Records a grant. Returns its round.
    pub(crate) fn grant(&mut self, tokens: NonZeroU32) -> u64 {
        if self.open == 0 {
            self.slack = u128::MAX;
        }
        self.open += u64::from(tokens.get());
        self.round
    }

    /// Observes the bucket just before a change; `missing` is the number of parts by which the bucket is short of full.
    pub(crate) fn observe(&mut self, missing: u128) {
        if self.open > 0 {
            self.slack = self.slack.min(missing);
            if self.slack == 0 {
                self.end_round();
            }
        }
    }

    /// Closes a grant whose tokens were used.
    pub(crate) fn used(&mut self, round: u64, tokens: NonZeroU32) {
        if round == self.round {
            self.open -= u64::from(tokens.get());
        }
    }

    /// How many parts at most are given back if no open grant is used. `missing` is as in [`observe`](Self::observe).
    pub(crate) fn returnable(&self, missing: u128, cost: impl FnOnce(u64) -> u128) -> u128 {
        cost(self.open).min(self.slack).min(missing)
    }

    /// Closes a grant whose tokens were not used. Returns how much of its cost is given back.
    pub(crate) fn give_back(&mut self, round: u64, tokens: NonZeroU32, cost: u128) -> u128 {
        if round != self.round {
            return 0;
        }
        self.open -= u64::from(tokens.get());
        let back = cost.min(self.slack);
        self.lower(back);
        back
    }

    /// Lowers the slack, because the bucket is fuller by `by` parts, as if these parts had never been taken.
    pub(crate) fn lower(&mut self, by: u128) {
        self.slack = self.slack.saturating_sub(by);
    }

    /// Ends the round, so that no grant made so far can be given back.
    pub(crate) fn end_round(&mut self) {
        self.round += 1;
        self.open = 0;
    }
}
