//! SHELL. Tokens of a shared bucket, taken ahead of time.
//!
//! It guards nothing by itself: what it holds belongs to it alone, and `cancel` takes the bucket's lock once.

use std::fmt;
use std::num::NonZeroU32;

use crate::bucket::shared::Shared;
use crate::{Clock, Monotonic, Nanos, Token};

/// Tokens of a [`RateLimiter`](crate::RateLimiter), taken ahead of time, to be used when they are due.
///
/// Dropping it uses them.
#[must_use = "dropping a reservation uses its tokens"]
pub struct Reserved<'a, T = Monotonic> {
    shared: &'a Shared<T>,
    token: Token,
}

impl<'a, T: Clock> Reserved<'a, T> {
    pub(crate) const fn new(shared: &'a Shared<T>, token: Token) -> Self {
        Self { shared, token }
    }

    /// When they may be used, on the bucket's clock.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.token.due()
    }

    /// How many they are.
    #[must_use]
    pub const fn count(&self) -> NonZeroU32 {
        self.token.count()
    }

    /// Gives them back, and says whether that made a difference: as
    /// [`TokenBucket::give_back`](crate::TokenBucket::give_back) says, and it makes none once tokens have come back that were
    /// granted after this reservation and never used: that of an [`Acquire`](crate::Acquire) dropped before it looked. Who waits
    /// in the line gets them.
    pub fn cancel(self) -> bool {
        self.shared.give_back(self.token, self.shared.now())
    }
}

impl<T> fmt::Debug for Reserved<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("token", &self.token).finish_non_exhaustive()
    }
}
