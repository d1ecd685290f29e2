//! Who comes next, spelled out: a list of Ready keys, and the rule of each order.

/// How Ready keys share the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// First in, first out.
    Fifo,
    /// By priority: a key is overtaken so many times for each level above it, or without a bound.
    Priority(Option<u64>),
    /// Groups take turns; with these weights, and so many leases each at most.
    Fair {
        /// Of group 0, 1 and so on; the others have 1.
        weights: [u32; 2],
        /// The same for all.
        cap: u32,
    },
}

/// What the order knows of a key.
#[derive(Clone, Copy, Debug)]
struct Place<K> {
    key: K,
    priority: i8,
    /// Added meanwhile, with this.
    wished: Option<i8>,
    leased: bool,
    /// In line since so many others came, at this level.
    line: Option<(u64, i8)>,
}

/// All keys of a queue, as far as their order goes.
#[derive(Clone, Debug)]
pub struct NaiveOrder<K> {
    sharing: Sharing,
    group: fn(K) -> usize,
    places: Vec<Place<K>>,
    came: u64,
    /// Groups in turn, with the hand-outs left to them.
    ring: Vec<(usize, u32)>,
}

impl<K: Copy + PartialEq> NaiveOrder<K> {
    /// No keys.
    pub fn new(sharing: Sharing, group: fn(K) -> usize) -> Self {
        Self { sharing, group, places: Vec::new(), came: 0, ring: Vec::new() }
    }

    /// A key is added with a priority, whatever comes of it.
    pub fn add(&mut self, key: K, priority: i8) {
        let Some(place) = self.places.iter_mut().find(|place| place.key == key) else {
            self.places.push(Place { key, priority, wished: None, leased: false, line: None });
            return;
        };
        if place.leased {
            place.wished = Some(place.wished.unwrap_or(priority).max(priority));
        } else if priority > place.priority {
            place.priority = priority;
            self.change_lines(key);
        }
    }

    /// It has this priority, whatever it had.
    pub fn set_priority(&mut self, key: K, priority: i8) -> bool {
        let Some(place) = self.places.iter_mut().find(|place| place.key == key) else { return false };
        place.priority = priority;
        place.wished = place.wished.map(|_| priority);
        self.change_lines(key);
        true
    }

    /// The priority that is asked for next.
    pub fn priority(&self, key: K) -> Option<i8> {
        let place = self.places.iter().find(|place| place.key == key)?;
        Some(place.wished.unwrap_or(place.priority))
    }

    /// A Ready key moves to the end of the line of its priority; one that is raised only if that is no worse.
    fn change_lines(&mut self, key: K) {
        let Some(place) = self.places.iter().find(|place| place.key == key).copied() else { return };
        let Some((turn, level)) = place.line.filter(|(_, level)| *level != place.priority) else { return };
        let Sharing::Priority(ageing) = self.sharing else { return };
        if let Some(ageing) = ageing {
            let here = turn + ageing * self.levels_above(level);
            let there = self.came + ageing * self.levels_above(place.priority);
            if place.priority > level && here <= there {
                return;
            }
        }
        self.leave(key);
        self.line_up(key);
    }

    fn levels_above(&self, level: i8) -> u64 {
        let mut above: Vec<i8> =
            self.places.iter().filter_map(|place| place.line).map(|(_, own)| own).collect();
        above.retain(|own| *own > level);
        above.sort_unstable();
        above.dedup();
        above.len() as u64
    }

    /// It becomes Ready.
    ///
    /// # Panics
    /// When nobody has added it.
    pub fn line_up(&mut self, key: K) {
        let came = self.came;
        self.came += 1;
        let place = self.place(key);
        place.line = Some((came, place.priority));
        self.turn_in(key);
    }

    /// It is Ready no more.
    pub fn leave(&mut self, key: K) {
        self.place(key).line = None;
        self.turn_in(key);
    }

    /// It was Ready and is handed out.
    pub fn take(&mut self, key: K) {
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
        if let Some(wished) = place.wished.take() {
            place.priority = if comes_back { place.priority.max(wished) } else { wished };
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

    /// A group is in turn while it has something to hand out; it comes in last.
    fn turn_in(&mut self, key: K) {
        let group = (self.group)(key);
        let Sharing::Fair { weights, .. } = self.sharing else { return };
        let able = self.able(group) > 0;
        let at = self.ring.iter().position(|(own, _)| *own == group);
        match at {
            Some(at) if !able => drop(self.ring.remove(at)),
            None if able => self.ring.push((group, weights.get(group).copied().unwrap_or(1))),
            _ => {}
        }
    }

    /// How many keys of a group could be handed out.
    fn able(&self, group: usize) -> usize {
        let Sharing::Fair { cap, .. } = self.sharing else { return 0 };
        let mine = || self.places.iter().filter(|place| (self.group)(place.key) == group);
        let leased = mine().filter(|place| place.leased).count();
        mine().filter(|place| place.line.is_some()).count().min((cap as usize).saturating_sub(leased))
    }

    /// Who is handed out next.
    pub fn next(&self) -> Option<K> {
        let eldest = |able: &dyn Fn(&Place<K>) -> bool| {
            let line = self.places.iter().filter(|place| place.line.is_some() && able(place));
            line.min_by_key(|place| place.line).map(|place| place.key)
        };
        match self.sharing {
            Sharing::Fifo => eldest(&|_| true),
            Sharing::Priority(None) => {
                let highest =
                    self.places.iter().filter_map(|place| place.line).map(|(_, level)| level).max()?;
                eldest(&|place| place.line.is_some_and(|(_, level)| level == highest))
            }
            Sharing::Priority(Some(ageing)) => {
                let lined = self.places.iter().filter_map(|place| Some((place.line?, place.key)));
                let ranked = lined.map(|((came, level), key)| {
                    let above = self.levels_above(level);
                    (came + ageing * above, above, came, key)
                });
                ranked.min_by_key(|(rank, above, came, _)| (*rank, *above, *came)).map(|(.., key)| key)
            }
            Sharing::Fair { .. } => {
                let (group, _) = *self.ring.first()?;
                eldest(&|place| (self.group)(place.key) == group)
            }
        }
    }

    /// Of each level or group, or of all, who has been in line the longest.
    pub fn heads(&self) -> Vec<K> {
        let class = |place: &Place<K>| match self.sharing {
            Sharing::Fifo => 0,
            Sharing::Priority(_) => place.line.map_or(0, |(_, level)| usize::from(level as u8)),
            Sharing::Fair { .. } => (self.group)(place.key),
        };
        let mut line: Vec<_> = self.places.iter().filter(|place| place.line.is_some()).collect();
        line.sort_by_key(|place| (class(place), place.line.map(|(came, _)| came)));
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
        line.extend(left.places.iter().filter(|place| place.line.is_some()).map(|place| place.key));
        (line, able)
    }

    fn place(&mut self, key: K) -> &mut Place<K> {
        self.places.iter_mut().find(|place| place.key == key).expect("somebody has added it")
    }
}
