//! Who comes next, spelled out: a list of Ready keys, and the rule of each order.

/// How Ready keys share the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// First in, first out.
    Fifo,
    /// By priority: a lower level is served once per so many hand-outs of the highest, or never.
    Priority(Option<u64>),
    /// Two groups take turns, and this holds for them.
    Fair([GroupLimits; 2]),
}

/// What holds for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Hand-outs in its turn; for none it has no turn.
    pub weight: u32,
    /// So many leases at most; for none nothing is handed out.
    pub leases: u32,
    /// So many keys at most.
    pub keys: usize,
}

impl GroupLimits {
    /// A weight, and nothing else.
    #[must_use]
    pub fn weight(weight: u32) -> Self {
        Self { weight, leases: u32::MAX, keys: usize::MAX }
    }
}

/// What the order knows of a key.
#[derive(Clone, Debug)]
struct Place<K> {
    key: K,
    /// What it comes back with.
    own: i8,
    /// What it is queued with, or was handed out with.
    priority: i8,
    /// Added meanwhile, with this.
    wished: Option<i8>,
    leased: bool,
    /// In line since so many others came, at this level; then the places it was raised to.
    lines: Vec<(u64, i8)>,
    wait: Wait,
}

/// How long a key has been in the first of its lines.
#[derive(Clone, Debug, Default)]
struct Wait {
    /// Keys that were before it there.
    before: u64,
    hand_outs: u64,
    /// Levels that were in use meanwhile, and not the highest.
    lower: Vec<i8>,
}

/// What a level has coming.
#[derive(Clone, Copy, Debug)]
struct Credit {
    level: i8,
    credits: u64,
    /// The hand-out at which it had none.
    since: u64,
}

/// All keys of a queue, as far as their order goes.
#[derive(Clone, Debug)]
pub struct OracleOrder<K> {
    sharing: Sharing,
    group: fn(K) -> usize,
    places: Vec<Place<K>>,
    came: u64,
    /// Groups in turn, with the hand-outs left to them.
    ring: Vec<(usize, u32)>,
    credits: Vec<Credit>,
    hand_outs: u64,
}

impl<K: Copy + PartialEq> OracleOrder<K> {
    /// No keys.
    pub fn new(sharing: Sharing, group: fn(K) -> usize) -> Self {
        Self {
            sharing,
            group,
            places: Vec::new(),
            came: 0,
            ring: Vec::new(),
            credits: Vec::new(),
            hand_outs: 0,
        }
    }

    /// A key is added with a priority, whatever comes of it.
    pub fn add(&mut self, key: K, priority: i8) {
        let Some(place) = self.places.iter_mut().find(|place| place.key == key) else {
            self.places.push(Place {
                key,
                own: priority,
                priority,
                wished: None,
                leased: false,
                lines: Vec::new(),
                wait: Wait::default(),
            });
            return;
        };
        if place.leased {
            place.wished = Some(place.wished.unwrap_or(priority).max(priority));
        } else if priority > place.priority {
            place.priority = priority;
            self.stand_too(key);
        }
    }

    /// It has this priority, whatever it had.
    pub fn set_priority(&mut self, key: K, priority: i8) -> bool {
        let Some(place) = self.places.iter_mut().find(|place| place.key == key) else { return false };
        let lowered = priority < place.priority;
        place.own = priority;
        place.priority = priority;
        place.wished = place.wished.map(|_| priority);
        if lowered {
            place.lines.truncate(1);
            if place.lines.first().is_some_and(|(_, level)| *level > priority) {
                place.lines.clear();
                self.line_up(key);
            }
        }
        self.stand_too(key);
        true
    }

    /// The priority that is asked for next.
    pub fn priority(&self, key: K) -> Option<i8> {
        let place = self.places.iter().find(|place| place.key == key)?;
        Some(place.wished.unwrap_or(place.priority))
    }

    /// A key in line has a place in the line of its priority, too.
    fn stand_too(&mut self, key: K) {
        let came = self.came;
        let place = self.place(key);
        let priority = place.priority;
        if !place.lines.is_empty() && place.lines.iter().all(|(_, level)| *level != priority) {
            place.lines.push((came, priority));
            self.came += 1;
        }
    }

    /// It becomes Ready.
    ///
    /// # Panics
    /// When nobody has added it.
    pub fn line_up(&mut self, key: K) {
        let came = self.came;
        self.came += 1;
        let level = self.place(key).priority;
        let before = self.places.iter().filter(|place| place.lines.iter().any(|(_, own)| *own == level));
        let wait = Wait { before: before.count() as u64, ..Wait::default() };
        let place = self.place(key);
        place.lines = vec![(came, level)];
        place.wait = wait;
        self.turn_in(key);
    }

    /// It is Ready no more.
    pub fn leave(&mut self, key: K) {
        self.place(key).lines.clear();
        self.turn_in(key);
    }

    /// It was next and is handed out.
    pub fn take(&mut self, key: K) {
        if let Sharing::Priority(share) = self.sharing {
            self.pay(share);
        }
        self.leave(key);
        self.place(key).leased = true;
        self.turn_in(key);
        let group = (self.group)(key);
        if let Some(at) = self.ring.iter().position(|(own, _)| *own == group) {
            self.ring[at].1 -= 1;
            if self.ring[at].1 == 0 {
                self.ring.remove(at);
                self.turn_in(key);
            }
        }
    }

    /// Its lease ends; `comes_back` for what it was leased for, too.
    pub fn end(&mut self, key: K, comes_back: bool) {
        let place = self.place(key);
        place.leased = false;
        let wished = place.wished.take();
        if comes_back {
            place.priority = wished.map_or(place.own, |wished| wished.max(place.own));
        } else if let Some(wished) = wished {
            place.own = wished;
            place.priority = wished;
        }
        self.turn_in(key);
    }

    /// It is not to come again.
    pub fn unmark(&mut self, key: K) {
        self.place(key).wished = None;
    }

    /// It is gone.
    pub fn forget(&mut self, key: K) {
        self.places.retain(|place| place.key != key);
    }

    /// The highest first.
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

    /// What a hand-out means to all levels; and what the documentation promises to those that are left waiting.
    fn pay(&mut self, share: Option<u64>) {
        let since = self.hand_outs + 1;
        let (levels, next) = (self.levels(), self.next());
        let Some(served) = self.next_level(share) else { return };
        let pay = |level: &i8| {
            let own = self.credit(*level);
            match served {
                _ if *level == served => Credit { level: *level, credits: 0, since },
                _ if served == levels[0] => Credit { credits: own.credits + 1, ..own },
                _ => own,
            }
        };
        // The others have no credits.
        let unused = self.credits.iter().filter(|credit| !levels.contains(&credit.level));
        let unused = unused.map(|credit| Credit { credits: 0, since, ..*credit });
        self.credits = levels.iter().map(pay).chain(unused).collect();
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
                    "{} hand-outs of {most} at {}",
                    wait.hand_outs,
                    place.priority
                );
            }
        }
    }

    /// A group is in turn while it has something to hand out; it comes in last.
    fn turn_in(&mut self, key: K) {
        let group = (self.group)(key);
        self.turn_group_in(group);
    }

    fn turn_group_in(&mut self, group: usize) {
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
        match self.sharing {
            Sharing::Fair(limits) => Some(limits[group]),
            _ => None,
        }
    }

    /// Other limits for a group, if there are groups.
    pub fn limit(&mut self, group: usize, to: GroupLimits) {
        if let Sharing::Fair(limits) = &mut self.sharing {
            limits[group] = to;
            self.turn_group_in(group);
        }
    }

    fn is_suspended(&self, group: usize) -> bool {
        self.limits(group).is_some_and(|limits| limits.weight == 0 || limits.leases == 0)
    }

    /// How many are in line whom nobody gets.
    pub fn suspended(&self) -> usize {
        let in_line = self.places.iter().filter(|place| !place.lines.is_empty());
        in_line.filter(|place| self.is_suspended((self.group)(place.key))).count()
    }

    /// How many more keys a group may have, if it is bounded.
    pub fn room_of(&self, group: usize) -> Option<usize> {
        let bound = self.limits(group)?.keys;
        let keys = self.places.iter().filter(|place| (self.group)(place.key) == group).count();
        (bound < usize::MAX).then(|| bound.saturating_sub(keys))
    }

    /// Whether the group of a key has no room for one more.
    pub fn is_full_for(&self, key: K) -> bool {
        self.room_of((self.group)(key)) == Some(0)
    }

    /// How many keys of a group could be handed out.
    fn able(&self, group: usize) -> usize {
        let Some(limits) = self.limits(group).filter(|_| !self.is_suspended(group)) else { return 0 };
        let mine = || self.places.iter().filter(|place| (self.group)(place.key) == group);
        let leased = mine().filter(|place| place.leased).count();
        mine()
            .filter(|place| !place.lines.is_empty())
            .count()
            .min((limits.leases as usize).saturating_sub(leased))
    }

    /// Who is handed out next.
    pub fn next(&self) -> Option<K> {
        let eldest = |able: &dyn Fn(&Place<K>) -> bool| {
            let line = self.places.iter().filter(|place| !place.lines.is_empty() && able(place));
            line.min_by_key(|place| place.lines[0]).map(|place| place.key)
        };
        match self.sharing {
            Sharing::Fifo => eldest(&|_| true),
            Sharing::Priority(share) => {
                let level = self.next_level(share)?;
                let there = self.places.iter().filter_map(|place| {
                    let (came, _) = place.lines.iter().find(|(_, own)| *own == level)?;
                    Some((*came, place.key))
                });
                there.min_by_key(|(came, _)| *came).map(|(_, key)| key)
            }
            Sharing::Fair(_) => {
                let (group, _) = *self.ring.first()?;
                eldest(&|place| (self.group)(place.key) == group)
            }
        }
    }

    /// Of each level or group, or of all, who has been in line the longest.
    pub fn heads(&self) -> Vec<K> {
        let class = |place: &Place<K>| match self.sharing {
            Sharing::Fifo => 0,
            Sharing::Priority(_) => usize::from(place.lines[0].1 as u8),
            Sharing::Fair(_) => (self.group)(place.key),
        };
        let mut line: Vec<_> = self.places.iter().filter(|place| !place.lines.is_empty()).collect();
        line.sort_by_key(|place| (class(place), place.lines[0].0));
        line.dedup_by_key(|place| class(place));
        line.into_iter().map(|place| place.key).collect()
    }

    /// Everybody in line: first those who can be handed out, in that order, then the others in no order; and how many
    /// the former are.
    pub fn in_line(&self) -> (Vec<K>, usize) {
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
        self.places.iter_mut().find(|place| place.key == key).expect("somebody has added it")
    }
}
