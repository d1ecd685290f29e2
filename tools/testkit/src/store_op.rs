//! Operations on a store as data, and the small objects they are about.

use arbitrary::{Arbitrary, Unstructured};

use crate::op::SmallKey;

/// An object with everything a store looks at. No two that a test makes are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    /// The key.
    pub key: u8,
    /// The identity.
    pub uid: u8,
    /// The version; 0 is none.
    pub version: u64,
    /// Values of an index, in this order, possibly with repetitions.
    pub tags: Vec<u8>,
    /// Whether the fallible index fails on it.
    pub broken: bool,
    /// Tells it from all others.
    pub serial: u64,
}

/// A version relative to what has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Later than everything before.
    Next,
    /// The latest so far.
    Same,
    /// So many before the latest.
    Back(u8),
    /// No version.
    None,
}

impl Stamp {
    /// The version, with the latest so far kept in `latest`.
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

/// An object in the making.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub struct Draft {
    key: SmallKey,
    stamp: Stamp,
    /// Tags in the low bits, identity and brokenness in the high ones.
    shape: u8,
}

impl Draft {
    /// The object.
    pub fn thing(self, latest: &mut u64, serial: &mut u64) -> Thing {
        *serial += 1;
        let mut tags: Vec<u8> = (0..3).filter(|bit| self.shape & (1 << bit) != 0).collect();
        if self.shape & 8 != 0 {
            tags.reverse();
            tags.extend(tags.first().copied());
        }
        Thing {
            key: self.key.0,
            uid: u8::from(self.shape & 0xC0 == 0xC0),
            version: self.stamp.version(latest),
            tags,
            broken: self.shape & 0x30 == 0x30,
            serial: *serial,
        }
    }
}

/// One step of a random life of a store. A subscription or snapshot is named by its index, modulo those there are.
#[derive(Clone, Debug)]
pub enum StoreOp {
    /// A watch event with an object.
    Upsert(Draft),
    /// A watch event of a deletion.
    Delete(Draft),
    /// A deletion nobody knows more of.
    Forget(SmallKey),
    /// A version.
    Bookmark(Stamp),
    /// A complete list.
    Replace(Vec<Draft>, Stamp),
    /// A page of a list.
    StagePut(Draft),
    /// The list is complete.
    StagePublish(Stamp),
    /// The list broke off.
    StageDrop,
    /// Takes a snapshot and holds it.
    Snapshot,
    /// Looks at the oldest snapshot and drops it.
    DropSnapshot,
    /// One more subscription.
    Subscribe,
    /// Takes changes.
    Take(u8, u8),
    /// Tells everything again.
    Resync(u8),
    /// Ends a subscription.
    Unsubscribe(u8),
    /// Waits for a version.
    WaitFor(Stamp),
    /// Gives up the oldest wait.
    DropWait,
    /// Ends the changes.
    Close,
}

/// Weights by the first byte.
impl<'a> Arbitrary<'a> for StoreOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=69 => Self::Upsert(u.arbitrary()?),
            70..=99 => Self::Delete(u.arbitrary()?),
            100..=107 => Self::Forget(u.arbitrary()?),
            108..=113 => Self::Bookmark(u.arbitrary()?),
            114..=129 => {
                let listed = (0..u8::arbitrary(u)? % 6).map(|_| u.arbitrary());
                Self::Replace(listed.collect::<arbitrary::Result<_>>()?, u.arbitrary()?)
            }
            130..=141 => Self::StagePut(u.arbitrary()?),
            142..=145 => Self::StagePublish(u.arbitrary()?),
            146 => Self::StageDrop,
            147..=154 => Self::Snapshot,
            155..=162 => Self::DropSnapshot,
            163..=174 => Self::Subscribe,
            175..=220 => Self::Take(u.arbitrary()?, u8::arbitrary(u)? % 6),
            221..=234 => Self::Resync(u.arbitrary()?),
            235..=239 => Self::Unsubscribe(u.arbitrary()?),
            240..=248 => Self::WaitFor(u.arbitrary()?),
            249..=253 => Self::DropWait,
            254 => Self::Bookmark(Stamp::None),
            255 => Self::Close,
        })
    }
}

/// One step of a life that is all about consumers which fall behind and catch up.
#[derive(Clone, Debug)]
pub struct SubscriptionOp(pub StoreOp);

impl<'a> Arbitrary<'a> for SubscriptionOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(match u8::arbitrary(u)? {
            0..=84 => StoreOp::Upsert(u.arbitrary()?),
            85..=104 => StoreOp::Delete(u.arbitrary()?),
            105..=114 => {
                let listed = (0..u8::arbitrary(u)? % 6).map(|_| u.arbitrary());
                StoreOp::Replace(listed.collect::<arbitrary::Result<_>>()?, u.arbitrary()?)
            }
            115..=164 => StoreOp::Take(u.arbitrary()?, 1),
            165..=204 => StoreOp::Take(u.arbitrary()?, 9),
            205..=245 => StoreOp::Resync(u.arbitrary()?),
            246..=251 => StoreOp::Subscribe,
            252..=254 => StoreOp::Unsubscribe(u.arbitrary()?),
            255 => StoreOp::Close,
        }))
    }
}
