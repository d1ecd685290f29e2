//! PURE. The token buckets of the groups, and the times at which groups get tokens.
//!
//! # Invariants
//! 1. Every hand-out of a group with a rate takes a token of the group's bucket, at `now`. So, by invariant 2 of
//!    [`TokenBucket`], a group gets at most burst + rate × time hand-outs in any span of time between two changes of its rate.
//! 2. `now` is the latest time that was passed in, and never decreases. If the clock jumps back, tokens are late by the jump, and never early.
//! 3. *One deadline a group.* A group *lacks tokens* if fewer tokens have arrived than it has keys that could be handed out otherwise. It is in
//!    `lacking` exactly then, under the time of its next token. A full bucket gets no further token, so its group lacks none.
//! 4. `known` tokens of a group have arrived at `now`, or more. So most operations need not compute the tokens.
//! 5. `next` is the first time in `lacking` and `kept`, so an operation compares one number while neither a token has arrived nor a bucket is full.
//! 6. A group that leaves the queue while its bucket is not full is *kept*: it is in `kept` until its bucket is full. A full bucket is the same as no
//!    bucket, so only then the record of the group is freed. (A kept group may have got keys again; it is checked when its time has passed.)

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use flyball_ratelimit::{Quota, TokenBucket};
use flyball_sync::Nanos;

/// The rates of all groups.
#[derive(Debug, Default)]
pub(super) struct Rates {
    now: Nanos,
    /// By the index of the group.
    groups: Vec<RatedGroup>,
    /// The groups that lack tokens: the time of the next token, the group's `since`, and its index.
    lacking: BTreeSet<(Nanos, u64, u32)>,
    /// The kept groups: the time at which the bucket is full, and the index of the group.
    kept: BTreeSet<(Nanos, u32)>,
    next: Next,
    /// The number of times that a full bucket was drawn from.
    drawn: u64,
}

/// A time, by default [`Nanos::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next(Nanos);

impl Default for Next {
    fn default() -> Self {
        Self(Nanos::MAX)
    }
}

#[derive(Debug, Default)]
struct RatedGroup {
    /// `None` if the group has no rate.
    bucket: Option<TokenBucket>,
    /// The number in `drawn` when the bucket was last full. It orders groups whose tokens arrive at the same time. It is used instead of the group's
    /// index, which depends on when the records of other groups were freed.
    since: u64,
    known: u32,
    /// The time in `lacking`.
    next_token: Option<Nanos>,
    /// The time in `kept`.
    kept_until: Option<Nanos>,
}

/// The tokens of a group, compared with the keys that could be handed out if there were no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Supply {
    /// The number of tokens that have arrived, or a smaller number that suffices for these keys.
    pub(super) tokens: u32,
    /// The time of the next token, if the tokens do not suffice.
    pub(super) next_token: Option<Nanos>,
}

impl Supply {
    const UNLIMITED: Self = Self { tokens: u32::MAX, next_token: None };
}

impl Rates {
    /// Updates the time. Returns whether tokens have arrived, or the bucket of a kept group is full.
    #[inline]
    pub(super) fn pass_time(&mut self, now: Nanos) -> bool {
        self.now = self.now.max(now);
        self.next.0 <= self.now
    }

    fn update_next(&mut self) {
        self.next = self.first_time();
    }

    fn first_time(&self) -> Next {
        let token = self.lacking.first().map(|(at, ..)| *at);
        let full = self.kept.first().map(|(at, _)| *at);
        Next(token.into_iter().chain(full).min().unwrap_or(Nanos::MAX))
    }

    /// Moves the buckets of all groups out. No group must lack tokens. The caller must [adopt](Self::adopt) the kept ones.
    pub(super) fn take_memory(&mut self) -> Self {
        let left = Self { now: self.now, drawn: self.drawn, ..Self::default() };
        std::mem::replace(self, left)
    }

    /// Moves the bucket of a kept group from `old`, where its index is `from`, the highest of those that were not adopted yet.
    pub(super) fn adopt(&mut self, group: u32, old: &mut Self, from: u32) {
        let own = old.groups.swap_remove(from as usize);
        self.kept.extend(own.kept_until.map(|until| (until, group)));
        self.update_next();
        debug_assert_eq!(group as usize, self.groups.len());
        self.groups.push(own);
    }

    /// Returns the later of `now` and the time that was last passed in.
    pub(super) fn latest(&self, now: Nanos) -> Nanos {
        self.now.max(now)
    }

    /// Called for a new group: its bucket is full.
    pub(super) fn insert(&mut self, group: u32, rate: Option<Quota>) {
        let index = group as usize;
        if index >= self.groups.len() {
            self.groups.resize_with(index + 1, RatedGroup::default);
        }
        self.groups[index] = RatedGroup { bucket: rate.map(TokenBucket::new), ..RatedGroup::default() };
    }

    pub(super) fn rate(&self, group: u32) -> Option<Quota> {
        self.groups[group as usize].bucket.as_ref().map(TokenBucket::quota)
    }

    /// Changes the rate of a group. The tokens that have arrived stay available, up to the new burst. A full bucket stays full, because the bucket of a
    /// group whose record was freed is full, too. The caller must then [`supply`](Self::supply) the group.
    pub(super) fn set_rate(&mut self, group: u32, rate: Option<Quota>) {
        let now = self.now;
        let own = &mut self.groups[group as usize];
        own.bucket = match (own.bucket.take(), rate) {
            (Some(mut bucket), Some(rate)) if full_at(&bucket, now) > now => {
                bucket.set_quota(rate, now);
                Some(bucket)
            }
            (_, rate) => rate.map(TokenBucket::new),
        };
        own.known = 0;
        if own.kept_until.is_some() {
            let at = own.bucket.as_ref().map_or(now, |bucket| full_at(bucket, now));
            self.set_kept(group, Some(at));
        }
    }

    /// Takes a token, for a hand-out.
    // `inline(never)`, here and below: otherwise the callers, which also serve orders without rates, are no longer inlined themselves.
    #[inline(never)]
    pub(super) fn take(&mut self, group: u32) {
        let now = self.now;
        if self.groups[group as usize].bucket.as_ref().is_some_and(|bucket| full_at(bucket, now) <= now) {
            // `since` is part of the entry in `lacking`, so there must be none. There is one if many tokens have arrived since the last operation.
            self.set_next_token(group, None);
            self.drawn += 1;
            self.groups[group as usize].since = self.drawn;
        }
        let own = &mut self.groups[group as usize];
        let Some(bucket) = &mut own.bucket else { return };
        own.known = own.known.saturating_sub(1);
        if bucket.try_acquire(now).is_err() {
            unreachable!("groups 3: a group without tokens is not in the ring");
        }
    }

    /// Updates the deadline of a group that has `wanted` keys that could be handed out if there were no rate. Returns the tokens for them.
    #[inline(never)]
    pub(super) fn supply(&mut self, group: u32, wanted: usize) -> u32 {
        let own = &self.groups[group as usize];
        if wanted <= own.known as usize && own.next_token.is_none() {
            return own.known;
        }
        let Supply { tokens, next_token } = self.supply_at(group, wanted, self.now);
        let own = &mut self.groups[group as usize];
        if own.bucket.is_some() {
            own.known = tokens;
        }
        if own.next_token != next_token {
            self.set_next_token(group, next_token);
        }
        tokens
    }

    /// Returns the tokens that a group has at `now`, which is not before the time that was last passed in.
    #[inline]
    pub(super) fn supply_at(&self, group: u32, wanted: usize, now: Nanos) -> Supply {
        let Some(bucket) = &self.groups[group as usize].bucket else { return Supply::UNLIMITED };
        let burst = bucket.quota().burst_size();
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(burst.get());
        // This compares times, which is cheaper than to count the tokens: that is a division of 128 bits.
        let lacks = NonZeroU32::new(wanted).is_some_and(|wanted| available_at(bucket, wanted, now) > now);
        if !lacks {
            return Supply { tokens: wanted, next_token: None };
        }
        let tokens = bucket.available_tokens(now);
        Supply { tokens, next_token: Some(available_at(bucket, NonZeroU32::MIN.saturating_add(tokens), now)) }
    }

    #[cold]
    fn set_next_token(&mut self, group: u32, at: Option<Nanos>) {
        let own = &mut self.groups[group as usize];
        let since = own.since;
        if let Some(old) = std::mem::replace(&mut own.next_token, at) {
            self.lacking.remove(&(old, since, group));
        }
        self.lacking.extend(at.map(|at| (at, since, group)));
        self.update_next();
    }

    /// Returns the groups that lack tokens, with the time of their next token, by that time.
    pub(super) fn lacking(&self) -> impl Iterator<Item = (Nanos, u32)> {
        self.lacking.iter().map(|(at, _, group)| (*at, *group))
    }

    /// Returns the first group for which a token has arrived.
    pub(super) fn first_due(&self) -> Option<u32> {
        let (at, group) = self.lacking().next()?;
        (at <= self.now).then_some(group)
    }

    /// Keeps a group without keys and adders if its bucket is not full. Returns whether it did.
    #[inline(never)]
    pub(super) fn keep(&mut self, group: u32) -> bool {
        let own = &self.groups[group as usize];
        if own.kept_until.is_none() {
            let full_at = own.bucket.as_ref().map(|bucket| full_at(bucket, self.now));
            self.set_kept(group, full_at.filter(|at| *at > self.now));
        }
        self.is_kept(group)
    }

    pub(super) fn is_kept(&self, group: u32) -> bool {
        self.groups[group as usize].kept_until.is_some()
    }

    /// If the time of a kept group has passed, the group is not kept any longer. Returns the group.
    pub(super) fn pop_kept(&mut self) -> Option<u32> {
        let (_, group) = self.kept.first().copied().filter(|(at, _)| *at <= self.now)?;
        self.set_kept(group, None);
        Some(group)
    }

    fn set_kept(&mut self, group: u32, until: Option<Nanos>) {
        if let Some(old) = std::mem::replace(&mut self.groups[group as usize].kept_until, until) {
            self.kept.remove(&(old, group));
        }
        self.kept.extend(until.map(|at| (at, group)));
        self.update_next();
    }

    /// Checks the invariants for one group that is in use.
    pub(super) fn check(&self, group: u32, wanted: usize, allowed: usize) -> Result<(), String> {
        let own = &self.groups[group as usize];
        let now = self.supply_at(group, wanted, self.now);
        own.bucket.as_ref().map_or(Ok(()), TokenBucket::check)?;
        if own.bucket.as_ref().map_or(0, |bucket| bucket.available_tokens(self.now)) < own.known {
            return Err(format!("rates 4: group {group} has fewer tokens than known: {own:?}"));
        }
        // Between the arrival of a token and the operation that notes it, the group has fewer tokens.
        let due = own.next_token.is_some_and(|at| at <= self.now);
        let (least, most) = (allowed.min(wanted), wanted.min(now.tokens as usize));
        if least > most || (!due && (least, own.next_token) != (most, now.next_token)) {
            return Err(format!(
                "rates 3: group {group} may hand out {allowed} of {wanted}: {own:?}, {now:?}"
            ));
        }
        if own.next_token.is_some_and(|at| !self.lacking.contains(&(at, own.since, group)))
            || own.kept_until.is_some_and(|at| !self.kept.contains(&(at, group)))
        {
            return Err(format!("rates 3, 6: the times of group {group} are not stored: {own:?}"));
        }
        Ok(())
    }

    /// Checks the number of deadlines.
    pub(super) fn check_counts(&self) -> Result<(), String> {
        let lacking = self.groups.iter().filter(|own| own.next_token.is_some()).count();
        let kept = self.groups.iter().filter(|own| own.kept_until.is_some()).count();
        if (lacking, kept) != (self.lacking.len(), self.kept.len()) {
            return Err(format!("rates 3, 6: {lacking} groups lack tokens, {kept} are kept: {self:?}"));
        }
        if self.next != self.first_time() {
            return Err(format!("rates 5: the next time is not the first: {self:?}"));
        }
        Ok(())
    }
}

/// Returns the time at which a bucket is full, or `now` if it is.
fn full_at(bucket: &TokenBucket, now: Nanos) -> Nanos {
    available_at(bucket, bucket.quota().burst_size(), now)
}

fn available_at(bucket: &TokenBucket, count: NonZeroU32, now: Nanos) -> Nanos {
    match bucket.available_at(count, now) {
        Ok(at) => at,
        Err(_) => unreachable!("the caller asks for at most the burst"),
    }
}
