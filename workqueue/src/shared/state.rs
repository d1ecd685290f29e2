//! SHELL. What the lock guards: the core, and who waits for it; and who is to be woken when it has changed.

use flyball_ratelimit::Nanos;

use super::Effects;
use crate::core::Core;
use crate::order::Links;
use crate::parked::Parked;
use crate::sleepers::Sleepers;

pub(crate) struct State<K, O> {
    pub(crate) core: Core<K, O>,
    /// Who waits for a key.
    pub(crate) getters: Parked,
    pub(crate) sleepers: Sleepers,
    /// Who waits for anything else.
    pub(crate) others: Others,
    pub(super) alarm: Alarm,
}

/// Who waits for something other than a key.
pub(crate) struct Others {
    /// Whether anybody does: set by who comes, taken back by `settle` once nobody is left.
    pub(crate) any: bool,
    /// For room.
    pub(crate) adders: Parked,
    pub(crate) blocked_adders: Sleepers,
    pub(crate) drainers: Parked,
    /// The earliest moment at which a parked drainer gives up.
    pub(crate) drain_at: Option<Nanos>,
    pub(crate) idlers: Parked,
    /// Threads that wait for the queue to be drained, or idle.
    pub(crate) blocked_drainers: usize,
    pub(crate) blocked_idlers: usize,
    /// Those threads were signalled, and none of them has begun to wait since. Without this, a getter that may not sleep
    /// with a duty would signal them again and again until they have run.
    pub(crate) told: bool,
    /// For a lease to be overdue.
    pub(crate) watchers: Parked,
    /// The earliest moment at which a parked watcher has something to see; `None` while it waits for a lease.
    pub(crate) watch_at: Option<Nanos>,
}

/// So many deadlines that have passed are looked at in one step: as many getters are sent for them at once, and send the
/// others when they have looked. All of them in each step would cost the square of their number.
const LOOKAHEAD: usize = 64;

/// The queue's one alarm.
#[derive(Default)]
pub(super) struct Alarm {
    /// An alarm is set, or being set, for this moment.
    pub(super) armed: Option<Nanos>,
    /// A thread is in the timer. It alone calls it, so a slower thread cannot overwrite an earlier alarm.
    pub(super) arming: bool,
    /// `armed` was set anew meanwhile; that thread calls the timer once more.
    pub(super) again: bool,
}

impl Others {
    fn nobody_waits(&self) -> bool {
        self.adders.waiting()
            + self.blocked_adders.asleep
            + self.drainers.waiting()
            + self.idlers.waiting()
            + self.blocked_drainers
            + self.blocked_idlers
            + self.watchers.waiting()
            == 0
    }
}

impl<K, O: Links> State<K, O> {
    pub(super) fn new(core: Core<K, O>) -> Self {
        let others = Others {
            any: false,
            adders: Parked::new(),
            blocked_adders: Sleepers::default(),
            drainers: Parked::new(),
            drain_at: None,
            idlers: Parked::new(),
            blocked_drainers: 0,
            blocked_idlers: 0,
            told: false,
            watchers: Parked::new(),
            watch_at: None,
        };
        let getters = Parked::new();
        Self { core, getters, sleepers: Sleepers::default(), others, alarm: Alarm::default() }
    }

    /// Whether `settle` might have something to do.
    ///
    /// Not while a thread is on its way and nobody else waits: it will look, and settle, itself.
    #[inline]
    pub(super) fn needs_settling(&self) -> bool {
        (self.getters.waiting() > 0) | self.others.any | self.sleepers.all_asleep()
    }

    /// Restores the three rules of `shared.rs`; changes nothing but who is awake.
    pub(super) fn settle(&mut self, now: Option<Nanos>, timer: bool) -> Effects {
        let mut effects = Effects::default();
        let mut alarm = None;
        if self.core.is_closed() {
            self.wake_getters(&mut effects);
        } else {
            // Also after shutdown: what was due then is Ready, and nothing else will say so.
            let (wanted, next) = self.core.outlook(now, if self.waits() { LOOKAHEAD } else { 0 });
            while self.getters.owed(wanted) + self.sleepers.signalled < wanted {
                if self.sleepers.signalled > 0 && self.getters.waiting() == 0 {
                    break;
                }
                if !self.hint_one(&mut effects) {
                    break;
                }
            }
            // For who still waits, the deadline after those that somebody is on his way for. Not left to them: one that
            // was woken and is never polled may hold back the key it was woken for, and nothing else.
            alarm = next.filter(|_| self.waits());
            if let Some(at) = alarm {
                self.attend(at, &mut effects);
            }
        }
        if self.others.any {
            self.settle_others(now, &mut alarm, &mut effects);
            self.others.any = !self.others.nobody_waits();
        }
        if timer {
            self.aim(alarm, &mut effects);
        }
        effects
    }

    /// The alarm rang. Its moment stands in for the time, which is not read here: the timer may ring early, and who is
    /// woken then looks at the clock, and waits again.
    ///
    /// Settling may set the alarm anew, for a later moment: a timer that rings at once and always gets through all of
    /// those, and stops.
    pub(super) fn ring(&mut self) -> Effects {
        let rang = self.alarm.armed.take();
        self.settle(rang, true)
    }

    /// Whether anybody waits for a key who is not on his way.
    fn waits(&self) -> bool {
        self.getters.waiting() > 0 || self.sleepers.asleep > 0
    }

    fn settle_others(&mut self, now: Option<Nanos>, alarm: &mut Option<Nanos>, effects: &mut Effects) {
        let Self { core, others, .. } = self;
        let (drained, idle) = (core.is_drained(), core.is_idle(now));
        // Nobody waits for room in a queue that takes no more keys.
        let room = if core.is_open() { core.room() } else { usize::MAX };
        while others.adders.owed(room) + others.blocked_adders.signalled < room {
            if let Some(waker) = others.adders.take_one() {
                effects.wake(waker);
            } else if others.blocked_adders.signal() {
                effects.room += 1;
            } else {
                break;
            }
        }
        if drained {
            effects.wake_all(&mut others.drainers);
        }
        if idle {
            effects.wake_all(&mut others.idlers);
        }
        let come = (drained && others.blocked_drainers > 0) || (idle && others.blocked_idlers > 0);
        effects.quiet = come && !others.told;
        others.told |= come;
        let come = |at: Option<Nanos>| at.is_some_and(|at| now.is_some_and(|now| at <= now));
        let unaimed = others.watch_at.is_none() && core.has_unreported();
        if drained || unaimed || come(others.watch_at) {
            effects.wake_all(&mut others.watchers);
            others.watch_at = None;
        }
        if come(others.drain_at) {
            effects.wake_all(&mut others.drainers);
            others.drain_at = None;
        }
        let watch = others.watch_at.filter(|_| others.watchers.waiting() > 0);
        let drain = others.drain_at.filter(|_| others.drainers.waiting() > 0);
        *alarm = alarm.iter().copied().chain(watch).chain(drain).min();
    }

    /// One of each who waits for time looks again.
    pub(super) fn wake_for_time(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.core.next_deadline().is_some() {
            self.hint_one(&mut effects);
        }
        effects.wake_all(&mut self.others.watchers);
        self.others.watch_at = None;
        if self.others.drain_at.take().is_some() {
            effects.wake_all(&mut self.others.drainers);
        }
        effects
    }

    /// Everybody who waits for a key looks again.
    pub(crate) fn wake_getters(&mut self, effects: &mut Effects) {
        effects.wake_all(&mut self.getters);
        effects.signal_all = self.sleepers.asleep > 0;
    }

    /// Wakes one getter, tasks first: a thread costs a system call.
    fn hint_one(&mut self, effects: &mut Effects) -> bool {
        if let Some(waker) = self.getters.take_one() {
            effects.wake(waker);
            return true;
        }
        let sleeps = self.sleepers.signal();
        effects.signals += usize::from(sleeps);
        sleeps
    }

    /// One of the sleeping threads looks when `at` comes. It needs no timer; but its clock may be one that is moved by
    /// hand, and then only the timer knows.
    fn attend(&mut self, at: Nanos, effects: &mut Effects) {
        let sleepers = &mut self.sleepers;
        let unattended = sleepers.attended.is_none_or(|attended| at < attended);
        // A signalled thread looks at the deadline before it sleeps again.
        if unattended && sleepers.signalled == 0 && sleepers.signal() {
            effects.signals += 1;
        }
    }

    /// The timer rings at the latest at `alarm`.
    fn aim(&mut self, alarm: Option<Nanos>, effects: &mut Effects) {
        let own = &mut self.alarm;
        let Some(at) = alarm.filter(|at| own.armed.is_none_or(|armed| *at < armed)) else { return };
        own.armed = Some(at);
        if own.arming {
            own.again = true;
        } else {
            own.arming = true;
            effects.arm = Some(at);
        }
    }
}
