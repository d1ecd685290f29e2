//! PURE. A quota in exact integers: time counted in parts.
//!
//! There are as many *parts* to a nanosecond as tokens to a period, and a token costs as many parts as the period has
//! nanoseconds; both are divided by what they have in common, so that the numbers stay small. Nothing is ever rounded
//! but an answer in nanoseconds, up, and what is missing when a quota changes, up as well: no fraction of a token is won.

use std::num::NonZeroU32;

use crate::{Nanos, NotYet, Quota, Reservation};

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedPointRate {
    /// What a token costs, in parts.
    token: u64,
    /// Parts a nanosecond.
    rate: u32,
    /// The most tokens at once.
    burst: u32,
}

impl FixedPointRate {
    pub(crate) const fn new(quota: Quota) -> Self {
        let (tokens, period) = (quota.tokens().get(), quota.period_nanos());
        let (mut common, mut rest) = (period, tokens as u64);
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        Self { token: period / common, rate: tokens / common as u32, burst: quota.burst_size().get() }
    }

    pub(crate) const fn rate(&self) -> u32 {
        self.rate
    }

    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// A point in time. Below 2^96.
    pub(crate) fn parts(&self, now: Nanos) -> u128 {
        u128::from(now.get()) * u128::from(self.rate)
    }

    /// What so many tokens cost; `u32::MAX` of them less than 2^96.
    pub(crate) fn cost(&self, tokens: u64) -> u128 {
        u128::from(self.token) * u128::from(tokens)
    }

    /// What a full bucket holds.
    pub(crate) fn capacity(&self) -> u128 {
        self.cost(self.burst.into())
    }

    /// The fullest debt: its last token is due at [`Nanos::MAX`]. Below 2^97.
    pub(crate) fn horizon(&self) -> u128 {
        self.parts(Nanos::MAX) + self.capacity()
    }

    /// When a bucket would be full that is full at `full_at`, and of which so many parts more are taken.
    ///
    /// Time does not fill it above the burst, and a debt ends at the horizon.
    pub(crate) fn after(&self, full_at: u128, now: Nanos, cost: u128) -> u128 {
        full_at.max(self.parts(now)).saturating_add(cost).min(self.horizon())
    }

    /// When the last token of a debt is due: one burst before the bucket is full, rounded up to a whole nanosecond.
    pub(crate) fn due(&self, full_at: u128, now: Nanos) -> Nanos {
        let after_now = full_at.saturating_sub(self.parts(now) + self.capacity());
        if after_now == 0 {
            return now;
        }
        // A division of 128 bits is the dearest step of all; few debts need one, and a rate that divides a nanosecond, which is
        // the usual one, needs none.
        let wait = match u64::try_from(after_now) {
            Ok(near) if self.rate == 1 => near,
            Ok(near) => near.div_ceil(self.rate.into()),
            // The horizon keeps the sum within 64 bits.
            Err(_) => after_now.div_ceil(self.rate.into()) as u64,
        };
        Nanos::new(now.get().saturating_add(wait))
    }

    /// Takes tokens ahead of time: when the bucket is full then, and when they are due.
    pub(crate) fn reserve(&self, full_at: u128, now: Nanos, count: NonZeroU32) -> (u128, Nanos) {
        let full_at = self.after(full_at, now, self.cost(count.get().into()));
        (full_at, self.due(full_at, now))
    }

    /// Takes tokens if they are there: when the bucket is full then.
    pub(crate) fn try_acquire(&self, full_at: u128, now: Nanos, count: NonZeroU32) -> Result<u128, NotYet> {
        let (full_at, due) = self.reserve(full_at, now, count);
        if due > now { Err(NotYet::new(due, now)) } else { Ok(full_at) }
    }

    /// Gives back what is reserved: when the bucket is full then; `None` if others build on it.
    ///
    /// With no later due time, these tokens and the last ones could change places without anybody noticing, so the last ones
    /// can go.
    pub(crate) fn cancel(&self, full_at: u128, now: Nanos, reservation: &Reservation) -> Option<u128> {
        let last = self.due(full_at, now);
        let cost = self.cost(reservation.count().get().into());
        (reservation.due() >= last).then(|| full_at.saturating_sub(cost))
    }

    /// How many tokens could be taken at once.
    pub(crate) fn available(&self, full_at: u128, now: Nanos) -> u32 {
        let missing = full_at.saturating_sub(self.parts(now));
        // At most `burst` tokens fit into the capacity.
        (self.capacity().saturating_sub(missing) / u128::from(self.token)) as u32
    }

    /// When the bucket would be full under `new`: what is available stays so, up to the new burst; debts stay debts of
    /// as many tokens; a larger burst fills up at the new rate.
    pub(crate) fn carry(&self, full_at: u128, now: Nanos, new: &Self) -> u128 {
        let missing = full_at.saturating_sub(self.parts(now));
        let (old_token, new_token) = (u128::from(self.token), u128::from(new.token));
        let (whole, rest) = (missing / old_token, missing % old_token);
        let missing = whole.saturating_mul(new_token).saturating_add((rest * new_token).div_ceil(old_token));
        let missing = missing.saturating_add(new.capacity()).saturating_sub(new.cost(self.burst.into()));
        new.parts(now).saturating_add(missing).min(new.horizon())
    }
}
