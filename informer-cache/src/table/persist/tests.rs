//! Compares each structure with a simple reference implementation, by random operations. Now and then, each test clones the structure and the
//! reference, and it compares each pair of clones at the end.

use std::collections::BTreeMap;

use super::{Hashes, Slab, Sorted, Vector};

/// A random number generator (xorshift). The assertions print its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

const SEEDS: std::ops::Range<u64> = 1..40;

#[test]
fn vector_matches_btree_map() {
    for seed in SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // If the range of numbers is small, most of them have an item; if it is large, few of them do.
        let numbers = [40, 1_500, 20_000][seed as usize % 3];
        let (mut ours, mut naive) = (Vector::new(), BTreeMap::new());
        let mut held = Vec::new();
        for step in 0..600 {
            let number = random.next(numbers) as u32;
            match random.next(10) {
                0..=4 => assert_eq!(ours.set(number, step), naive.insert(number, step), "seed {seed}"),
                5..=7 => assert_eq!(ours.remove(number), naive.remove(&number), "seed {seed}"),
                8 => {
                    if let (Some(ours), Some(naive)) = (ours.get_mut(number), naive.get_mut(&number)) {
                        (*ours, *naive) = (step + 1_000, step + 1_000);
                    }
                }
                _ => held.push((ours.clone(), naive.clone())),
            }
            assert_eq!(ours.get(number), naive.get(&number), "seed {seed}");
        }
        held.push((ours, naive));
        for (ours, naive) in &held {
            ours.check().unwrap();
            assert!(ours.iter().eq(naive.iter().map(|(number, item)| (*number, item))), "seed {seed}");
            assert_eq!(ours.iter().len(), naive.len());
            for _ in 0..20 {
                let from = random.next(numbers + 3_000) as u32;
                let rest = naive.range(from..).map(|(number, item)| (*number, item));
                assert!(ours.iter_from(from).eq(rest), "seed {seed}");
            }
        }
    }
}

#[test]
fn hash_of_ones_does_not_find_vacant_entries() {
    let mut hashes = Hashes::new();
    let found = |hashes: &Hashes, hash| {
        let mut numbers = Vec::new();
        let _: Option<()> = hashes.find(hash, |number| {
            numbers.push(number);
            None
        });
        numbers
    };
    hashes.insert(7, 1);
    assert_eq!(found(&hashes, u64::MAX), [], "a number that was not inserted was found");
    hashes.insert(u64::MAX, 3);
    assert_eq!(found(&hashes, 0xffff_ffff), [3]);
    hashes.remove(u64::MAX, 3);
    assert_eq!(found(&hashes, u64::MAX), []);
}

#[test]
fn slab_assigns_the_lowest_free_number() {
    for seed in SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut ours, mut naive) = (Slab::new(), BTreeMap::new());
        let mut held = Vec::new();
        for step in 0..30_000_u32 {
            // The slab grows beyond two branches, shrinks until it is nearly empty, and grows again.
            let grows = step / 10_000 != 1;
            if (random.next(10) < 8) == grows {
                let number = ours.insert(step);
                if naive.len() < 100 || step % 500 == 0 {
                    let lowest = (0..).find(|number| !naive.contains_key(number));
                    assert_eq!(lowest, Some(number), "seed {seed}");
                }
                assert_eq!(naive.insert(number, step), None, "seed {seed}");
            } else if let Some(end) = naive.last_key_value().map(|(last, _)| last + 1) {
                // Of the last numbers, or of all numbers.
                let from = if seed % 2 == 0 { end.saturating_sub(200) } else { 0 };
                let number = from + random.next(u64::from(end - from)) as u32;
                assert_eq!(ours.remove(number), naive.remove(&number), "seed {seed}");
            }
            if step % 3_000 == 0 {
                held.push((ours.clone(), naive.clone()));
            }
            if step % 100 == 0 {
                ours.check().unwrap();
            }
        }
        held.push((ours, naive));
        for (ours, naive) in &held {
            ours.check().unwrap();
            assert!(ours.iter().eq(naive.iter().map(|(number, item)| (*number, item))), "seed {seed}");
        }
    }
}

#[test]
fn slab_of_many_branches_finds_free_numbers_and_forgets_the_end() {
    let (mut slab, branches) = (Slab::new(), 130);
    let end = branches * super::vector::PER_BRANCH as u32;
    (0..end).for_each(|number| assert_eq!(slab.insert(number), number));
    for number in [end / 2, 5, end - 2] {
        slab.remove(number);
    }
    slab.check().unwrap();
    assert_eq!([5, end / 2, end - 2, end].map(|_| slab.insert(0)), [5, end / 2, end - 2, end]);
    for number in (7..=end).rev() {
        slab.remove(number);
    }
    slab.check().unwrap();
    assert_eq!((slab.items().end(), slab.insert(0)), (7, 7));
}

#[test]
fn hashes_find_inserted_numbers() {
    for seed in SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // The seed selects one of three kinds of hashes: only three distinct hashes, hashes that are equal in the bits that choose the page, or well
        // distributed hashes.
        let hash_of: fn(u32) -> u64 = match seed % 3 {
            0 => |number| u64::from(number % 3),
            1 => |number| u64::from(number) << 20,
            _ => |number| u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32),
        };
        let (mut ours, mut naive) = (Hashes::new(), Vec::new());
        let mut held = Vec::new();
        for step in 0..3_000_u32 {
            // The index grows, then shrinks until it is empty, then grows again.
            let grows = step / 1_000 != 1;
            if (random.next(10) < 8) == grows {
                ours.insert(hash_of(step), step);
                naive.push(step);
            } else if !naive.is_empty() {
                let gone = naive.swap_remove(random.next(naive.len() as u64) as usize);
                ours.remove(hash_of(gone), gone);
                assert_eq!(
                    ours.find(hash_of(gone), |number| (number == gone).then_some(())),
                    None,
                    "seed {seed}"
                );
            }
            if step % 500 == 0 {
                held.push((ours.clone(), naive.clone()));
            }
            if step % 50 == 0 {
                ours.check(|number| Some(hash_of(number))).unwrap();
            }
        }
        held.push((ours, naive));
        for (ours, naive) in &held {
            ours.check(|number| Some(hash_of(number))).unwrap();
            for number in naive {
                assert_eq!(
                    ours.find(hash_of(*number), |other| (other == *number).then_some(other)),
                    Some(*number),
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn sorted_matches_vec() {
    for seed in SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut ours, mut naive) = (Sorted::new(), Vec::new());
        let mut held = Vec::new();
        for step in 0..40_000_u32 {
            // The list grows to three branches, by insertions at random positions or at the end, and then shrinks until it is empty.
            let grows = step / 15_000 != 1;
            if (random.next(10) < 9) == grows {
                let at =
                    if seed % 2 == 0 { naive.len() } else { random.next(naive.len() as u64 + 1) as usize };
                ours.insert_at(at, step);
                naive.insert(at, step);
            } else if !naive.is_empty() {
                let at =
                    if seed % 3 == 0 { naive.len() - 1 } else { random.next(naive.len() as u64) as usize };
                assert_eq!(ours.remove_at(at), Some(naive.remove(at)), "seed {seed}");
            }
            if step % 4_000 == 0 {
                held.push((ours.clone(), naive.clone()));
            }
            if step % 500 == 0 {
                ours.check().unwrap();
                assert_eq!(ours.len(), naive.len());
                assert_eq!(ours.last(), naive.last().copied());
            }
        }
        held.push((ours, naive));
        for (ours, naive) in &held {
            ours.check().unwrap();
            assert!(ours.iter().eq(naive.iter().copied()), "seed {seed}");
            for at in (0..naive.len() + 2).step_by(7) {
                assert_eq!(ours.get(at), naive.get(at).copied(), "seed {seed}");
            }
        }
    }
}

#[test]
fn appended_list_folds_as_it_iterates_and_leaves_clones_unchanged() {
    // The list grows to three levels.
    let (mut ours, mut held) = (Sorted::new(), Vec::new());
    for number in 0..20_000_u32 {
        assert!(ours.insert(3 * number));
        if number % 997 == 0 || number % 1024 == 127 {
            held.push((ours.clone(), number + 1));
        }
    }
    for (list, len) in &held {
        list.check().unwrap();
        let all: Vec<_> = (0..*len).map(|number| 3 * number).collect();
        for skip in [0, 1, 127, 128, 129, 8191, 8192, 8193, 20_000] {
            let mut rest = list.iter();
            let skipped = rest.by_ref().take(skip).count();
            assert_eq!(rest.len(), all.len() - skipped);
            let folded = rest.fold(Vec::new(), |mut numbers, number| {
                numbers.push(number);
                numbers
            });
            assert_eq!(folded, all[skipped..]);
        }
    }
}

#[test]
fn ascending_list_matches_btree_set() {
    for seed in SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut ours, mut naive) = (Sorted::new(), std::collections::BTreeSet::new());
        for _ in 0..5_000 {
            let number = random.next(3_000) as u32;
            match random.next(2) {
                0 => assert_eq!(ours.insert(number), naive.insert(number), "seed {seed}"),
                _ => assert_eq!(ours.remove(number), naive.remove(&number), "seed {seed}"),
            }
        }
        ours.check().unwrap();
        assert!(ours.iter().eq(naive.iter().copied()), "seed {seed}");
        for number in 0..3_000 {
            let found = ours.search(|other| other.cmp(&number));
            assert_eq!(found.is_ok(), naive.contains(&number));
            assert_eq!(found.unwrap_or_else(|at| at), naive.range(..number).count(), "seed {seed}");
        }
    }
}
