//! The oracle of the queue orders: a list of the Ready keys, from which the rule of each order selects the next key.

use crate::oracle::limiter::OracleQuota;
use crate::oracle::rate::OracleRate;
use crate::queue_answers::Time;

/// The order of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKind {
    /// FIFO.
    Fifo,
    /// By priority. With `Some(n)`, a lower level is served once after `n` hand-outs of the highest level. With `None`, a lower level is served only
    /// while all higher levels are empty.
    Priority(Option<u64>),
    /// Fair queueing between two groups with these weights and limits.
    Fair([GroupLimits; 2]),
}

/// The weight and the limits of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// The weight of the group: how many of its keys are handed out per round. A group with weight 0 is suspended.
    pub weight: u32,
    /// The maximum number of keys of the group that are leased at the same time. With 0, the group is suspended.
    pub leases: u32,
    /// The maximum number of keys of the group in the queue.
    pub keys: usize,
    /// How often keys of the group are handed out; `None` for no limit.
    pub rate: Option<OracleQuota>,
}

impl GroupLimits {
    /// A group with a weight and without limits.
    #[must_use]
    pub fn weight(weight: u32) -> Self {
        Self { weight, leases: u32::MAX, keys: usize::MAX, rate: None }
    }
}

/// The state of a key that affects its place in the order.
#[derive(Clone, Debug)]
struct Place<K> {
    key: K,
    /// The key's own priority.
    own: i8,
    /// The priority at which the key is queued or was handed out.
    priority: i8,
    /// The highest priority of the adds that were made while the key was leased.
    add_priority: Option<i8>,
    leased: bool,
    /// The positions of a Ready key; each has a sequence number and a level. The first is the position at which the key became Ready. Each time the
    /// priority of the key is raised, a further position is appended.
    lines: Vec<(u64, i8)>,
    wait: Wait,
}

/// How long a Ready key has waited, counted in hand-outs, and the numbers from which the upper bound of this wait is computed.
#[derive(Clone, Debug, Default)]
struct Wait {
    /// The number of keys that were Ready at the same level when this key became Ready.
    before: u64,
    hand_outs: u64,
    /// The levels that had Ready keys at a hand-out during the wait, and were not the highest level at that hand-out.
    lower: Vec<i8>,
}

/// The credits of a level. A lower level gains one with each hand-out of the highest level.
#[derive(Clone, Copy, Debug)]
struct Credit {
    level: i8,
    credits: u64,
    /// The number of the hand-out at which the credits of the level were last reset to zero.
    since: u64,
}

/// The oracle of a queue order: all keys of a queue, and the state of the order.
#[derive(Clone, Debug)]
pub struct OracleOrder<K> {
    kind: OrderKind,
    group: fn(K) -> usize,
    places: Vec<Place<K>>,
    came: u64,
    /// The groups that can be served, in round-robin order, each with the number of keys that may still be handed out from it in this round.
    ring: Vec<(usize, u32)>,
    /// The time up to which tokens have arrived.
    now: Time,
    /// The rate of each group, and the number of the hand-out that was the first since the rate last allowed a whole burst.
    rates: [(Option<OracleRate>, u64); 2],
    bursts: u64,
    credits: Vec<Credit>,
    hand_outs: u64,
}

impl<K: Copy + PartialEq> OracleOrder<K> {
    /// Creates an order without keys.
    pub fn new(kind: OrderKind, group: fn(K) -> usize) -> Self {
        let rates = match kind {
            OrderKind::Fair(limits) => limits.map(|own| (own.rate.map(|rate| OracleRate::new(rate, 0)), 0)),
            _ => [(None, 0), (None, 0)],
        };
        Self {
            kind,
            group,
            places: Vec::new(),
            came: 0,
            ring: Vec::new(),
            now: 0,
            rates,
            bursts: 0,
            credits: Vec::new(),
            hand_outs: 0,
        }
    }

    /// Advances the time. Each group that gets a token in the meantime is added to the round-robin list at the time of its token. Of two groups that get
    /// one at the same time, the one that had its whole burst earlier is added first.
    pub fn advance(&mut self, now: Time) {
        loop {
            let mut next: Vec<_> = (0..2).filter_map(|group| self.next_token(group)).collect();
            next.sort_unstable();
            let Some((first, ..)) = next.first().copied().filter(|(at, ..)| *at <= now) else { break };
            self.now = first;
            for (_, _, group) in next.into_iter().filter(|(at, ..)| *at == first) {
                self.update_ring_for(group);
            }
        }
        self.now = self.now.max(now);
    }

    /// The next token of a group, if there are keys that wait for it.
    fn next_token(&self, group: usize) -> Option<(Time, u64, usize)> {
        let (rate, since) = &self.rates[group];
        let rate = rate.as_ref()?;
        let tokens = rate.tokens(self.now);
        if tokens >= self.wanted(group) {
            return None;
        }
        Some((rate.next(tokens + 1)?, *since, group))
    }

    /// Records that a key was added with a priority, whatever the outcome of the add.
    pub fn add(&mut self, key: K, priority: i8) {
        let Some(place) = self.places.iter_mut().find(|place| place.key == key) else {
            self.places.push(Place {
                key,
                own: priority,
                priority,
                add_priority: None,
                leased: false,
                lines: Vec::new(),
                wait: Wait::default(),
            });
            return;
        };
        if place.leased {
            place.add_priority = Some(place.add_priority.unwrap_or(priority).max(priority));
        } else if priority > place.priority {
            place.priority = priority;
            self.queue_at_priority(key);
        }
    }

    /// Sets the priority of a key. Returns whether the key is in the queue.
    pub fn set_priority(&mut self, key: K, priority: i8) -> bool {
        let Some(place) = self.places.iter_mut().find(|place| place.key == key) else { return false };
        let lowered = priority < place.priority;
        place.own = priority;
        place.priority = priority;
        place.add_priority = place.add_priority.map(|_| priority);
        if lowered {
            place.lines.truncate(1);
            if place.lines.first().is_some_and(|(_, level)| *level > priority) {
                place.lines.clear();
                self.make_ready(key);
            }
        }
        self.queue_at_priority(key);
        true
    }

    /// The priority of a key. If the key was added while it was leased, this is the highest priority of these adds.
    pub fn priority(&self, key: K) -> Option<i8> {
        let place = self.places.iter().find(|place| place.key == key)?;
        Some(place.add_priority.unwrap_or(place.priority))
    }

    /// Gives a Ready key a further position, at its current priority, if it does not yet have a position at this priority. Its earlier positions
    /// stay.
    fn queue_at_priority(&mut self, key: K) {
        let came = self.came;
        let place = self.place(key);
        let priority = place.priority;
        if !place.lines.is_empty() && place.lines.iter().all(|(_, level)| *level != priority) {
            place.lines.push((came, priority));
            self.came += 1;
        }
    }

    /// Makes a key Ready.
    ///
    /// # Panics
    /// Panics if the key was not added.
    pub fn make_ready(&mut self, key: K) {
        let came = self.came;
        self.came += 1;
        let level = self.place(key).priority;
        let before = self.places.iter().filter(|place| place.lines.iter().any(|(_, own)| *own == level));
        let wait = Wait { before: before.count() as u64, ..Wait::default() };
        let place = self.place(key);
        place.lines = vec![(came, level)];
        place.wait = wait;
        self.update_ring(key);
    }

    /// Removes a Ready key.
    pub fn leave(&mut self, key: K) {
        self.place(key).lines.clear();
        self.update_ring(key);
    }

    /// Hands out `key`, which must be the next key.
    pub fn take(&mut self, key: K) {
        if let OrderKind::Priority(share) = self.kind {
            self.update_credits(share);
        }
        self.leave(key);
        self.place(key).leased = true;
        let group = (self.group)(key);
        if let OrderKind::Fair(_) = self.kind {
            let (rate, since) = &mut self.rates[group];
            if let Some(rate) = rate {
                if rate.is_full(self.now) {
                    self.bursts += 1;
                    *since = self.bursts;
                }
                rate.hand_out(self.now);
            }
        }
        self.update_ring(key);
        if let Some(at) = self.ring.iter().position(|(own, _)| *own == group) {
            self.ring[at].1 -= 1;
            if self.ring[at].1 == 0 {
                self.ring.remove(at);
                self.update_ring(key);
            }
        }
    }

    /// Ends the lease of a key. `comes_back` is true if the key is requeued.
    pub fn end(&mut self, key: K, comes_back: bool) {
        let place = self.place(key);
        place.leased = false;
        let add_priority = place.add_priority.take();
        if comes_back {
            place.priority = add_priority.map_or(place.own, |add_priority| add_priority.max(place.own));
        } else if let Some(add_priority) = add_priority {
            place.own = add_priority;
            place.priority = add_priority;
        }
        self.update_ring(key);
    }

    /// Discards the priority of the adds that were made while the key was leased.
    pub fn unmark(&mut self, key: K) {
        self.place(key).add_priority = None;
    }

    /// Removes a key.
    pub fn forget(&mut self, key: K) {
        self.places.retain(|place| place.key != key);
    }

    /// The levels with Ready keys, the highest first.
    fn levels(&self) -> Vec<i8> {
        let mut levels: Vec<i8> =
            self.places.iter().flat_map(|place| &place.lines).map(|(_, level)| *level).collect();
        levels.sort_unstable_by(|one, other| other.cmp(one));
        levels.dedup();
        levels
    }

    fn credit(&self, level: i8) -> Credit {
        let own = self.credits.iter().find(|credit| credit.level == level);
        own.copied().unwrap_or(Credit { level, credits: 0, since: self.hand_outs })
    }

    /// The level that is served next.
    fn next_level(&self, share: Option<u64>) -> Option<i8> {
        let levels = self.levels();
        let highest = levels.first()?;
        let owed =
            levels.iter().filter(|level| share.is_some_and(|share| self.credit(**level).credits >= share));
        Some(*owed.min_by_key(|level| self.credit(**level).since).unwrap_or(highest))
    }

    /// Updates the credits of all levels for a hand-out, and checks that no Ready key has waited longer than the documented bound.
    fn update_credits(&mut self, share: Option<u64>) {
        let since = self.hand_outs + 1;
        let (levels, next) = (self.levels(), self.next());
        let Some(served) = self.next_level(share) else { return };
        let update_credits = |level: &i8| {
            let own = self.credit(*level);
            match served {
                _ if *level == served => Credit { level: *level, credits: 0, since },
                _ if served == levels[0] => Credit { credits: own.credits + 1, ..own },
                _ => own,
            }
        };
        // Levels without Ready keys lose their credits.
        let unused = self.credits.iter().filter(|credit| !levels.contains(&credit.level));
        let unused = unused.map(|credit| Credit { credits: 0, since, ..*credit });
        self.credits = levels.iter().map(update_credits).chain(unused).collect();
        self.hand_outs = since;
        for place in self.places.iter_mut().filter(|place| !place.lines.is_empty() && Some(place.key) != next)
        {
            let wait = &mut place.wait;
            wait.hand_outs += 1;
            wait.lower
                .extend(levels[1..].iter().filter(|level| !wait.lower.contains(level)).collect::<Vec<_>>());
            if let Some(share) = share {
                let most = (share + wait.lower.len() as u64) * (wait.before + 1);
                assert!(
                    wait.hand_outs < most,
                    "a key has waited for {} hand-outs, the bound is {most}, its priority is {}",
                    wait.hand_outs,
                    place.priority
                );
            }
        }
    }

    /// Updates the round-robin list, which contains the groups that have a key that can be handed out. A group that enters the list is added at its
    /// end.
    fn update_ring(&mut self, key: K) {
        let group = (self.group)(key);
        self.update_ring_for(group);
    }

    fn update_ring_for(&mut self, group: usize) {
        let Some(limits) = self.limits(group) else { return };
        let able = self.able(group) > 0;
        let at = self.ring.iter().position(|(own, _)| *own == group);
        match at {
            Some(at) if !able => drop(self.ring.remove(at)),
            Some(at) => self.ring[at].1 = self.ring[at].1.min(limits.weight),
            None if able => self.ring.push((group, limits.weight)),
            _ => {}
        }
    }

    fn limits(&self, group: usize) -> Option<GroupLimits> {
        match self.kind {
            OrderKind::Fair(limits) => Some(limits[group]),
            _ => None,
        }
    }

    /// Sets the weight and the limits of a group, if the order has groups.
    pub fn limit(&mut self, group: usize, to: GroupLimits) {
        if let OrderKind::Fair(limits) = &mut self.kind {
            if limits[group].rate != to.rate {
                let own = &mut self.rates[group].0;
                match (own.as_mut(), to.rate) {
                    (Some(rate), Some(quota)) => rate.set_quota(quota, self.now),
                    (_, quota) => *own = quota.map(|quota| OracleRate::new(quota, self.now)),
                }
            }
            limits[group] = to;
            self.update_ring_for(group);
        }
    }

    fn is_suspended(&self, group: usize) -> bool {
        self.limits(group).is_some_and(|limits| limits.weight == 0 || limits.leases == 0)
    }

    /// The number of Ready keys that cannot be handed out, because their group is suspended.
    pub fn suspended(&self) -> usize {
        let dequeue_order = self.places.iter().filter(|place| !place.lines.is_empty());
        dequeue_order.filter(|place| self.is_suspended((self.group)(place.key))).count()
    }

    /// The remaining capacity of a group, or `None` if the group has no capacity limit.
    pub fn room_of(&self, group: usize) -> Option<usize> {
        let bound = self.limits(group)?.keys;
        let keys = self.places.iter().filter(|place| (self.group)(place.key) == group).count();
        (bound < usize::MAX).then(|| bound.saturating_sub(keys))
    }

    /// Whether the group of a key is full.
    pub fn is_full_for(&self, key: K) -> bool {
        self.room_of((self.group)(key)) == Some(0)
    }

    /// The number of Ready keys that cannot be handed out now because of the lease limit of their group, and because of its rate.
    pub fn limited(&self) -> (usize, usize) {
        let by_group = |group: usize| {
            let ready = self
                .places
                .iter()
                .filter(|place| !place.lines.is_empty() && (self.group)(place.key) == group);
            let ready = if self.is_suspended(group) { 0 } else { ready.count() };
            (ready - self.wanted(group), self.wanted(group) - self.able(group))
        };
        let (one, other) = (by_group(0), by_group(1));
        (one.0 + other.0, one.1 + other.1)
    }

    /// The number of keys of a group that can be handed out now, within its limits.
    fn able(&self, group: usize) -> usize {
        let tokens = self.rates[group].0.as_ref().map_or(usize::MAX, |rate| rate.tokens(self.now));
        self.wanted(group).min(tokens)
    }

    /// The number of keys of a group that can be handed out now, within its limit of leases.
    fn wanted(&self, group: usize) -> usize {
        let Some(limits) = self.limits(group).filter(|_| !self.is_suspended(group)) else { return 0 };
        let mine = || self.places.iter().filter(|place| (self.group)(place.key) == group);
        let leased = mine().filter(|place| place.leased).count();
        mine()
            .filter(|place| !place.lines.is_empty())
            .count()
            .min((limits.leases as usize).saturating_sub(leased))
    }

    /// The key that is handed out next.
    pub fn next(&self) -> Option<K> {
        let eldest = |able: &dyn Fn(&Place<K>) -> bool| {
            let line = self.places.iter().filter(|place| !place.lines.is_empty() && able(place));
            line.min_by_key(|place| place.lines[0]).map(|place| place.key)
        };
        match self.kind {
            OrderKind::Fifo => eldest(&|_| true),
            OrderKind::Priority(share) => {
                let level = self.next_level(share)?;
                let there = self.places.iter().filter_map(|place| {
                    let (came, _) = place.lines.iter().find(|(_, own)| *own == level)?;
                    Some((*came, place.key))
                });
                there.min_by_key(|(came, _)| *came).map(|(_, key)| key)
            }
            OrderKind::Fair(_) => {
                let (group, _) = *self.ring.first()?;
                eldest(&|place| (self.group)(place.key) == group)
            }
        }
    }

    /// The keys that have been Ready longest: one for each level, one for each group or, in FIFO order, one for the whole queue.
    pub fn heads(&self) -> Vec<K> {
        let class = |place: &Place<K>| match self.kind {
            OrderKind::Fifo => 0,
            OrderKind::Priority(_) => usize::from(place.lines[0].1 as u8),
            OrderKind::Fair(_) => (self.group)(place.key),
        };
        let mut line: Vec<_> = self.places.iter().filter(|place| !place.lines.is_empty()).collect();
        line.sort_by_key(|place| (class(place), place.lines[0].0));
        line.dedup_by_key(|place| class(place));
        line.into_iter().map(|place| place.key).collect()
    }

    /// All Ready keys, and how many of them can be handed out. The keys that can be handed out come first, in the order
    /// of hand-out; the others follow in no order.
    pub fn dequeue_order(&self) -> (Vec<K>, usize) {
        let mut left = self.clone();
        let mut line = Vec::new();
        while let Some(key) = left.next() {
            left.take(key);
            line.push(key);
        }
        let able = line.len();
        line.extend(left.places.iter().filter(|place| !place.lines.is_empty()).map(|place| place.key));
        (line, able)
    }

    fn place(&mut self, key: K) -> &mut Place<K> {
        self.places.iter_mut().find(|place| place.key == key).expect("the key was added")
    }
}
