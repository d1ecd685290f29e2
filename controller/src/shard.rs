//! PURE. A fixed share of all keys.
//!
//! # Invariants
//! 1. For a given number of shards, every name is in exactly one of them.
//! 2. The shard of a name does not depend on the process, the machine or the version of this crate, because replicas of two versions run side by side
//!    during a rollout. So the hash is implemented here, and pinned by a test.

use std::error::Error;
use std::fmt;

use flyball_sync::random::mix;

/// A fixed share of all keys, for one of several replicas; see [`Controller::filter_keys`](crate::Controller::filter_keys).
///
/// The bytes of a name determine its shard. Use the namespace of an object as its name if each namespace is to belong to one replica; otherwise use
/// the whole key. The same name is in the same shard in every process and every version of this crate. Shards are about equal in size if there are
/// many names. When the number of shards changes, at least half of the names move to a different shard.
///
/// While a replica is down, no other replica reconciles its shard. Sharding only divides the work; for failover, elect a
/// leader for each shard.
///
/// # Examples
/// ```
/// use flyball_controller::Shard;
///
/// let shards = [0, 1, 2].map(|index| Shard::new(index, 3).unwrap());
/// let mine: Vec<_> = shards.iter().filter(|shard| shard.contains("kube-system")).collect();
/// assert_eq!(mine.len(), 1);
/// assert!(Shard::new(3, 3).is_err()); // shards are counted from 0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "Unchecked"))]
pub struct Shard {
    index: u32,
    of: u32,
}

/// The serialised form, before validation.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    index: u32,
    of: u32,
}

#[cfg(feature = "serde")]
impl TryFrom<Unchecked> for Shard {
    type Error = InvalidShard;

    fn try_from(Unchecked { index, of }: Unchecked) -> Result<Self, InvalidShard> {
        Self::new(index, of)
    }
}

impl Shard {
    /// Returns the shard with the number `index` if there are `of` shards, numbered from 0.
    ///
    /// # Errors
    /// Returns an error if `index` is not less than `of`.
    pub const fn new(index: u32, of: u32) -> Result<Self, InvalidShard> {
        if index < of { Ok(Self { index, of }) } else { Err(InvalidShard { index, of }) }
    }

    /// Returns whether this name is in the shard.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        // The high half of the product is the number of the shard. Unlike a remainder, it needs no division; its bias is negligible.
        let place = (u128::from(hash(name.as_ref())) * u128::from(self.of)) >> 64;
        place == u128::from(self.index)
    }
}

/// 64-bit FNV-1a (Fowler, Noll, Vo), followed by the mixing function of splitmix64, because the last bytes of the name barely change the high bits of
/// FNV-1a.
fn hash(name: &[u8]) -> u64 {
    let fnv = name.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    });
    mix(fnv)
}

/// The error of [`Shard::new`] if the index is not less than the number of shards.
///
/// # Examples
/// ```
/// use flyball_controller::{InvalidShard, Shard};
///
/// let invalid: InvalidShard = Shard::new(3, 3).unwrap_err();
/// assert_eq!(invalid.to_string(), "there is no shard 3 of 3, as they are counted from 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidShard {
    index: u32,
    of: u32,
}

impl fmt::Display for InvalidShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no shard {} of {}, as they are counted from 0", self.index, self.of)
    }
}

impl Error for InvalidShard {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_never_changes() {
        let pinned = [
            ("", 0xF52A_15E9_A9B5_E89B),
            ("a", 0x02C0_BDBF_4814_20F8),
            ("foobar", 0x404D_A9E3_B740_78C2),
            ("kube-system", 0x3B05_351E_56AC_5B39),
        ];
        for (name, expected) in pinned {
            assert_eq!(hash(name.as_bytes()), expected, "{name:?}");
        }
    }

    #[test]
    fn every_name_is_in_one_shard_and_shards_are_about_equal() {
        for of in [1, 2, 3, 7, 16] {
            let shards: Vec<_> = (0..of).map(|index| Shard::new(index, of).unwrap()).collect();
            let mut sizes = vec![0_u32; of as usize];
            for number in 0..10_000 {
                let name = format!("namespace-{number}");
                let holding: Vec<_> =
                    (0..shards.len()).filter(|shard| shards[*shard].contains(&name)).collect();
                let [shard] = holding[..] else { panic!("{name} is in {holding:?} of {of}") };
                sizes[shard] += 1;
            }
            let fair = 10_000 / of;
            assert!(sizes.iter().all(|size| size.abs_diff(fair) <= fair / 5), "{sizes:?}");
        }
    }

    #[test]
    fn refuses_an_index_out_of_range() {
        assert_eq!(
            Shard::new(2, 2).unwrap_err().to_string(),
            "there is no shard 2 of 2, as they are counted from 0"
        );
        assert!(Shard::new(0, 0).is_err());
        assert!(Shard::new(0, 1).unwrap().contains("anything"));
    }
}
