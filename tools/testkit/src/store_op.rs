//! Random operations on a store, and the small objects that they write.

use std::ops::Bound;

use arbitrary::{Arbitrary, Unstructured};

use crate::oracle::selector::{KEYS, Labels, OracleSelector, VALUES};
use crate::queue_setup::SmallKey;

/// An object with every kind of property that a store can read. Any two objects of a test differ, because `serial` is unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestObject {
    /// The key.
    pub key: u8,
    /// The identity: two objects with the same key are states of one object if they have the same `uid`.
    pub uid: u8,
    /// The version; 0 means no version.
    pub version: u64,
    /// The values of the object in an index, in the order that the index function returns. A value may occur several times.
    pub tags: Vec<u8>,
    /// Whether the fallible index function fails for this object.
    pub broken: bool,
    /// The value of the object in an ordered index.
    pub rank: u8,
    /// The labels.
    pub labels: Labels,
    /// How many times [`transform`](Self::transform) was called on this object.
    pub slimmed: u8,
    /// Unique to this object.
    pub serial: u64,
}

/// Sorted strings, some of which are prefixes of others.
pub const PATHS: [&str; 6] = ["", "a", "a/b", "a/c", "ab", "é/b"];

impl TestObject {
    /// The values of the object in an ordered index of strings. There may be none, and a value may occur several times.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let path = |tag: &u8| PATHS[usize::from(tag + self.rank) % PATHS.len()].to_owned();
        self.tags.iter().map(path).collect()
    }

    /// The transformation of a store: removes the version. It also counts its calls in `slimmed`, so that a test detects if an object was transformed
    /// twice.
    #[must_use]
    pub fn transform(self) -> Self {
        Self { version: 0, slimmed: self.slimmed + 1, ..self }
    }
}

/// The version of an object, relative to the earlier versions of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// A version that is higher than all earlier versions.
    Next,
    /// The highest version so far.
    Same,
    /// The highest version so far, minus this number.
    Back(u8),
    /// No version.
    None,
}

impl Stamp {
    /// Returns the version. `latest` is the highest version so far, and is updated.
    pub fn version(self, latest: &mut u64) -> u64 {
        match self {
            Self::Next => {
                *latest += 1;
                *latest
            }
            Self::Same => *latest,
            Self::Back(back) => latest.saturating_sub(u64::from(back)).max(1),
            Self::None => 0,
        }
    }
}

impl<'a> Arbitrary<'a> for Stamp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? % 16 {
            0..=9 => Self::Next,
            10 | 11 => Self::Same,
            12 | 13 => Self::Back(1),
            14 => Self::Back(3),
            _ => Self::None,
        })
    }
}

/// The random data from which a test creates an object.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub struct Draft {
    key: SmallKey,
    stamp: Stamp,
    /// Bits that select the tags (low bits), the identity, and whether the fallible index fails (high bits).
    shape: u8,
    rank: u8,
    /// Three bits per label, which select whether the object has this label, and its value.
    labels: u16,
}

impl Draft {
    /// Creates the object.
    pub fn thing(self, latest: &mut u64, serial: &mut u64) -> TestObject {
        *serial += 1;
        let mut tags: Vec<u8> = (0..3).filter(|bit| self.shape & (1 << bit) != 0).collect();
        if self.shape & 8 != 0 {
            tags.reverse();
            tags.extend(tags.first().copied());
        }
        let label = |(at, key): (usize, &&str)| {
            let bits = usize::from(self.labels >> (3 * at)) & 7;
            (bits > 2).then(|| (String::from(*key), VALUES[(bits + at) % VALUES.len()].to_owned()))
        };
        TestObject {
            key: self.key.0,
            uid: u8::from(self.shape & 0xC0 == 0xC0),
            version: self.stamp.version(latest),
            tags,
            broken: self.shape & 0x30 == 0x30,
            rank: self.rank % 5,
            labels: KEYS.iter().enumerate().filter_map(label).collect(),
            slimmed: 0,
            serial: *serial,
        }
    }
}

/// The parameters of one query for each kind of index, and of queries that combine several indexes.
#[derive(Clone, Debug)]
pub struct QueryParts {
    /// The selector of labels.
    pub selector: OracleSelector,
    /// Which conditions a combined query has; one bit per condition.
    pub conditions: u8,
    /// The value that queries look up in most of the indexes.
    pub tag: u8,
    /// A second value, which combined queries look up or exclude.
    pub other: u8,
    /// A range of ranks; its start is not after its end.
    pub ranks: (Bound<u8>, Bound<u8>),
    /// A range of paths; its start is not after its end.
    pub paths: (Bound<&'static str>, Bound<&'static str>),
    /// A prefix of paths.
    pub prefix: &'static str,
}

impl<'a> Arbitrary<'a> for QueryParts {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let [conditions, values, ranks, paths, kinds] = u.arbitrary::<[u8; 5]>()?;
        let (a, b) = (ranks % 6, (ranks >> 4) % 6);
        let sorted = PATHS.len() as u8;
        let (c, d) = (paths % sorted, (paths >> 4) % sorted);
        let path = |at: u8| PATHS[usize::from(at)];
        Ok(Self {
            selector: u.arbitrary()?,
            conditions,
            tag: values % 5,
            other: (values >> 4) % 5,
            ranks: bounds(a.min(b), a.max(b), kinds % 16),
            paths: bounds(path(c.min(d)), path(c.max(d)), kinds / 16),
            prefix: ["", "a", "a/", "ab", "b", "é"][usize::from(paths ^ kinds) % 6],
        })
    }
}

/// Returns a range from `a` to `b`. `kind` selects for each end whether it is included, excluded or unbounded.
fn bounds<T: Copy>(a: T, b: T, kind: u8) -> (Bound<T>, Bound<T>) {
    let from = [Bound::Included(a), Bound::Included(a), Bound::Excluded(a), Bound::Unbounded];
    let to = [Bound::Excluded(b), Bound::Included(b), Bound::Included(b), Bound::Unbounded];
    (from[usize::from(kind % 4)], to[usize::from(kind / 4 % 4)])
}

/// The options of a subscription.
#[derive(Clone, Copy, Debug, Default, Arbitrary)]
pub struct View {
    /// The selected objects.
    pub of: Selected,
    /// Whether only objects are delivered for which [`passes`](Self::passes) returns true.
    pub filtered: bool,
    /// Whether the subscription resyncs every [`PERIOD`](Self::PERIOD).
    pub periodic: bool,
    /// Whether at most [`MOST`](Self::MOST) keys may be pending.
    pub bounded: bool,
}

/// The selection of a subscription.
#[derive(Clone, Copy, Debug, Default, Arbitrary)]
pub enum Selected {
    /// All objects.
    #[default]
    All,
    /// One key.
    Key(SmallKey),
    /// Objects with a tag.
    Tag(u8),
    /// The same as `Tag`. This second variant makes random selections by tag twice as frequent.
    Tagged(u8),
}

impl Selected {
    /// The tag.
    #[must_use]
    pub fn tag(self) -> Option<u8> {
        match self {
            Self::Tag(tag) | Self::Tagged(tag) => Some(tag % 4),
            Self::All | Self::Key(_) => None,
        }
    }

    /// Returns whether the selection contains an object.
    #[must_use]
    pub fn is_of(self, thing: &TestObject) -> bool {
        match self {
            Self::All => true,
            Self::Key(key) => thing.key == key.0,
            Self::Tag(tag) | Self::Tagged(tag) => thing.tags.contains(&(tag % 4)),
        }
    }
}

impl View {
    /// The maximum number of pending keys of a bounded subscription.
    pub const MOST: usize = 2;

    /// The resync period of a subscription that resyncs periodically, in seconds.
    pub const PERIOD: u64 = 10;

    /// The filter.
    #[must_use]
    pub fn passes(thing: &TestObject) -> bool {
        thing.rank % 2 == 0
    }
}

/// One step of a random operation sequence on a store. A number that selects a subscription or an index is taken modulo the number of subscriptions
/// or indexes.
#[derive(Clone, Debug)]
pub enum StoreOp {
    /// A watch event with an object.
    Upsert(Draft),
    /// A watch event of a deletion.
    Delete(Draft),
    /// A deletion without further data.
    Forget(SmallKey),
    /// A bookmark with a version.
    Bookmark(Stamp),
    /// A complete list.
    Replace(Vec<Draft>, Stamp),
    /// Adds an object to the list that is being received.
    StagePut(Draft),
    /// Removes a key from the list that is being received.
    StageRemove(SmallKey),
    /// Keeps some of the stored objects that are not in the list. An object is kept if the bit of this number at the position of its key is set.
    StageKeep(u8),
    /// Completes the list and publishes it.
    StagePublish(Stamp),
    /// Drops the list, as if listing had failed.
    StageDrop,
    /// A write in a transaction.
    TransactionUpsert(Draft),
    /// A deletion in a transaction, with the last state of the object if the flag is true.
    TransactionDelete(Draft, bool),
    /// Commits a transaction.
    Commit,
    /// Discards a transaction.
    Abandon,
    /// Adds an index.
    AddIndex(u8),
    /// Removes an index.
    RemoveIndex(u8),
    /// Queries the store and every snapshot.
    Ask(Box<QueryParts>),
    /// Takes a snapshot and keeps it.
    Snapshot,
    /// Checks the oldest snapshot and drops it.
    DropSnapshot,
    /// Adds a subscription.
    Subscribe,
    /// Adds a subscription with options.
    SubscribeTo(View),
    /// Advances the clock by this many seconds.
    Pass(u8),
    /// Takes changes.
    Take(u8, u8),
    /// Requests a resync.
    Resync(u8),
    /// Ends a subscription.
    Unsubscribe(u8),
    /// Waits for a version.
    WaitFor(Stamp),
    /// Drops the oldest wait.
    DropWait,
    /// Closes the store.
    Close,
}

/// The first byte selects the operation; frequent operations have more values.
impl<'a> Arbitrary<'a> for StoreOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=59 => Self::Upsert(u.arbitrary()?),
            60..=79 => Self::Delete(u.arbitrary()?),
            80..=85 => Self::Forget(u.arbitrary()?),
            86..=90 => Self::Bookmark(u.arbitrary()?),
            91..=102 => {
                let listed = (0..u8::arbitrary(u)? % 6).map(|_| u.arbitrary());
                Self::Replace(listed.collect::<arbitrary::Result<_>>()?, u.arbitrary()?)
            }
            103..=114 => Self::StagePut(u.arbitrary()?),
            115..=118 => Self::StagePublish(u.arbitrary()?),
            119 => Self::StageDrop,
            120..=127 => Self::Snapshot,
            128..=131 => Self::DropSnapshot,
            132..=135 => Self::Subscribe,
            136..=141 => Self::SubscribeTo(u.arbitrary()?),
            142..=181 => Self::Take(u.arbitrary()?, u8::arbitrary(u)? % 6),
            182..=187 => Self::Resync(u.arbitrary()?),
            188..=191 => Self::Pass(u8::arbitrary(u)? % 12),
            192..=195 => Self::Unsubscribe(u.arbitrary()?),
            196..=202 => Self::WaitFor(u.arbitrary()?),
            203..=206 => Self::DropWait,
            207 => Self::Bookmark(Stamp::None),
            208 => Self::Close,
            209..=218 => Self::TransactionUpsert(u.arbitrary()?),
            219..=222 => Self::TransactionDelete(u.arbitrary()?, u.arbitrary()?),
            223..=226 => Self::Commit,
            227 => Self::Abandon,
            228..=234 => Self::AddIndex(u.arbitrary()?),
            235..=240 => Self::RemoveIndex(u.arbitrary()?),
            241..=243 => Self::StageRemove(u.arbitrary()?),
            244 => Self::StageKeep(u.arbitrary()?),
            245..=255 => Self::Ask(u.arbitrary()?),
        })
    }
}

/// One step of a sequence in which subscribers fall behind and catch up again.
#[derive(Clone, Debug)]
pub struct SubscriptionOp(pub StoreOp);

impl<'a> Arbitrary<'a> for SubscriptionOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(match u8::arbitrary(u)? {
            0..=74 => StoreOp::Upsert(u.arbitrary()?),
            75..=84 => StoreOp::Resync(u.arbitrary()?),
            85..=104 => StoreOp::Delete(u.arbitrary()?),
            105..=114 => {
                let listed = (0..u8::arbitrary(u)? % 6).map(|_| u.arbitrary());
                StoreOp::Replace(listed.collect::<arbitrary::Result<_>>()?, u.arbitrary()?)
            }
            115..=164 => StoreOp::Take(u.arbitrary()?, 1),
            165..=204 => StoreOp::Take(u.arbitrary()?, 9),
            205..=243 => StoreOp::Resync(u.arbitrary()?),
            244..=247 => StoreOp::Pass(u8::arbitrary(u)? % 12),
            248..=251 => StoreOp::SubscribeTo(u.arbitrary()?),
            252..=254 => StoreOp::Unsubscribe(u.arbitrary()?),
            255 => StoreOp::Close,
        }))
    }
}
