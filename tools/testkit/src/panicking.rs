//! Keys that panic on demand and count the calls of their methods.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The methods of a key that a queue may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// `Hash::hash`.
    Hash,
    /// `PartialEq::eq`.
    Eq,
    /// `Clone::clone`.
    Clone,
    /// `Drop::drop`.
    Drop,
}

impl Point {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Hash, Self::Eq, Self::Clone, Self::Drop];
}

/// The state that a family of [`PanickingKey`]s shares. It counts the calls of their methods, and makes a selected call panic.
#[derive(Debug, Default)]
pub struct PanicSwitch {
    calls: [AtomicU64; 4],
    fuses: [AtomicI64; 4],
    live: AtomicI64,
}

impl PanicSwitch {
    /// Creates the state of a new family, in which no key panics.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates a key of this family.
    #[must_use]
    pub fn key(self: &Arc<Self>, id: u32) -> PanickingKey {
        self.live.fetch_add(1, Ordering::SeqCst);
        PanickingKey { id, switch: self.clone() }
    }

    /// Makes the `nth` call of the method `point`, counted from now, panic once. With 1, the next call panics.
    pub fn arm(&self, point: Point, nth: i64) {
        self.fuses[point as usize].store(nth, Ordering::SeqCst);
    }

    /// Disables the panic of the method `point`. Returns whether the panic had not occurred yet.
    pub fn disarm(&self, point: Point) -> bool {
        self.fuses[point as usize].swap(0, Ordering::SeqCst) > 0
    }

    /// The number of calls of the method `point` so far.
    #[must_use]
    pub fn calls(&self, point: Point) -> u64 {
        self.calls[point as usize].load(Ordering::SeqCst)
    }

    /// The number of existing keys of this family. At the end of a test, any number except 0 means that a key was leaked or dropped twice.
    #[must_use]
    pub fn live(&self) -> i64 {
        self.live.load(Ordering::SeqCst)
    }

    fn called(&self, point: Point) {
        self.calls[point as usize].fetch_add(1, Ordering::SeqCst);
        let fuse = &self.fuses[point as usize];
        // Does not panic if the thread is already unwinding from a panic, because a second panic would abort the test.
        if fuse.load(Ordering::SeqCst) > 0
            && fuse.fetch_sub(1, Ordering::SeqCst) == 1
            && !std::thread::panicking()
        {
            panic!("a hostile key panics in {point:?}");
        }
    }
}

/// A key that panics on demand in `Hash`, `Eq`, `Clone` or `Drop`.
pub struct PanickingKey {
    id: u32,
    switch: Arc<PanicSwitch>,
}

impl PanickingKey {
    /// The number that identifies the key. `Eq` and `Hash` use it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Hash for PanickingKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.switch.called(Point::Hash);
        self.id.hash(state);
    }
}

impl PartialEq for PanickingKey {
    fn eq(&self, other: &Self) -> bool {
        self.switch.called(Point::Eq);
        self.id == other.id
    }
}

impl Eq for PanickingKey {}

impl Clone for PanickingKey {
    fn clone(&self) -> Self {
        self.switch.called(Point::Clone);
        self.switch.key(self.id)
    }
}

impl Drop for PanickingKey {
    fn drop(&mut self) {
        self.switch.live.fetch_sub(1, Ordering::SeqCst);
        self.switch.called(Point::Drop);
    }
}

impl fmt::Debug for PanickingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PanickingKey({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_fuse_burns_once_at_its_call() {
        let switch = PanicSwitch::new();
        let key = switch.key(1);
        switch.arm(Point::Clone, 2);
        let copy = key.clone();
        assert!(catch_unwind(AssertUnwindSafe(|| key.clone())).is_err());
        assert!(!switch.disarm(Point::Clone));
        drop(key.clone());
        assert_eq!((switch.calls(Point::Clone), switch.live()), (3, 2));
        switch.arm(Point::Drop, 1);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(copy))).is_err());
        drop(key);
        assert_eq!(switch.live(), 0);
    }
}
