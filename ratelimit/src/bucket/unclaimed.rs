//! PURE. What of a granted token is still worth something to others.
//!
//! A waiter is granted its tokens when they are due, whether it looks or not. If it is dropped before it looks, they go
//! back. How much of them? In a bucket that never had them taken, everything would have gone the same, and the bucket
//! would be full by so much earlier, *unless* that one had been full in between: then what flowed over is gone. By how
//! much the two differ is the least that was missing to a full bucket, at any change since the grant. Tokens that were
//! reserved ahead meanwhile are such a change at the time that they are due.
//!
//! One `slack` serves all grants of a *round*: the least that was missing since the oldest of them, which is no more than
//! is right for each. When it reaches zero, the bucket has been full, and a new round begins: grants of earlier rounds are
//! spent. So a waiter that never comes back is kept in mind until the bucket is full once, and no longer.

/// The grants that nobody has looked at yet.
#[derive(Debug)]
pub(crate) struct UnclaimedGrants {
    round: u64,
    /// Grants of this round that are open.
    open: u64,
    /// In parts.
    slack: u128,
}

impl UnclaimedGrants {
    pub(crate) const fn new() -> Self {
        Self { round: 0, open: 0, slack: u128::MAX }
    }

    /// Whether a grant might still be given back: then every change must be observed.
    pub(crate) const fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Tokens were granted; says in which round.
    pub(crate) fn grant(&mut self) -> u64 {
        if self.open == 0 {
            self.slack = u128::MAX;
        }
        self.open += 1;
        self.round
    }

    /// So much is missing to a full bucket, just before a change.
    pub(crate) fn observe(&mut self, missing: u128) {
        if self.open > 0 {
            self.slack = self.slack.min(missing);
            if self.slack == 0 {
                self.end_round();
            }
        }
    }

    /// A grant was used.
    pub(crate) fn used(&mut self, round: u64) {
        if round == self.round {
            self.open -= 1;
        }
    }

    /// A grant was not used: so much of its cost goes back.
    pub(crate) fn give_back(&mut self, round: u64, cost: u128) -> u128 {
        if round != self.round {
            return 0;
        }
        self.open -= 1;
        let back = cost.min(self.slack);
        self.lower(back);
        back
    }

    /// The bucket is, and always was, fuller by so much.
    pub(crate) fn lower(&mut self, by: u128) {
        self.slack = self.slack.saturating_sub(by);
    }

    /// Nothing granted so far can be given back.
    pub(crate) fn end_round(&mut self) {
        self.round += 1;
        self.open = 0;
    }
}
