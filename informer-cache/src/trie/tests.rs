//! Against a plain list, with hashes that share long prefixes, and copies that must not change.

use testkit::random::cases;

use super::{Hashed, Trie, Walk};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    hash: u64,
    key: u8,
    value: u8,
}

impl Hashed for Item {
    fn hash(&self) -> u64 {
        self.hash
    }
}

/// Few hashes, chosen so that paths part at every level and some never do.
fn hash(key: u8) -> u64 {
    match key % 8 {
        0 => 0,
        1 => 1,
        2 => 1 << 63,
        3 => u64::MAX,
        4 => 0b10000,
        5 => 1 << 59,
        6 => (1 << 59) | 1,
        _ => 0x5555_5555_5555_5555 ^ (u64::from(key) << 29),
    }
}

#[test]
fn agrees_with_a_list() {
    cases("trie", 4_000, 300, |bytes| {
        let mut trie = Trie::new();
        let mut list: Vec<Item> = Vec::new();
        let mut held: Option<(Trie<Item>, Vec<Item>)> = None;
        for op in bytes.chunks_exact(3) {
            let (key, value) = (op[1] % 40, op[2]);
            let item = Item { hash: hash(key), key, value };
            let known = list.iter().position(|item| item.key == key);
            match op[0] % 8 {
                0..=2 => {
                    let replaced = known.map(|at| list.swap_remove(at));
                    list.push(item.clone());
                    assert_eq!(trie.insert(item, |there| there.key == key), replaced);
                }
                3 | 4 => {
                    let removed = known.map(|at| list.swap_remove(at));
                    assert_eq!(trie.remove(hash(key), |there| there.key == key), removed);
                }
                5 => {
                    if let Some(there) = trie.get_mut(hash(key), |there| there.key == key) {
                        there.value = value;
                        list[known.expect("the trie knows it")].value = value;
                    } else {
                        assert_eq!(known, None);
                    }
                }
                6 => {
                    if let Some((trie, list)) = held.take() {
                        same(&trie, &list);
                    }
                    held = Some((trie.clone(), list.clone()));
                }
                _ => assert_eq!(trie.get(hash(key), |there| there.key == key), known.map(|at| &list[at])),
            }
            trie.check().unwrap();
        }
        same(&trie, &list);
        if let Some((trie, list)) = held {
            same(&trie, &list);
        }
    });
}

fn same(trie: &Trie<Item>, list: &[Item]) {
    trie.check().unwrap();
    assert_eq!(trie.iter().len(), list.len());
    let mut seen: Vec<Item> = trie.iter().cloned().collect();
    assert!(seen.is_sorted_by_key(|item| item.hash), "in the order of hashes");
    let mut walked = Vec::new();
    let mut walk = Walk::new(trie);
    while let Some(item) = walk.item() {
        assert_eq!(walk.left(), list.len() - walked.len());
        walked.push(item.clone());
        walk.advance();
    }
    assert_eq!(walk.left(), 0);
    assert_eq!(walked, seen);
    let mut expected = list.to_vec();
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
}

#[test]
fn a_copy_shares_what_did_not_change() {
    let mut trie = Trie::new();
    for key in 0..200_u8 {
        let hash = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        trie.insert(Item { hash, key, value: 0 }, |_| false);
    }
    let copy = trie.clone();
    let shared =
        |a: &Trie<Item>, b: &Trie<Item>| a.iter().zip(b.iter()).filter(|(a, b)| std::ptr::eq(*a, *b)).count();
    assert_eq!(shared(&trie, &copy), 200);
    let hash = 7_u64.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    trie.get_mut(hash, |item| item.key == 7).unwrap().value = 1;
    // The root and one child were copied: that is 1/32 of the items, and what lies in the root itself.
    let shared = shared(&trie, &copy);
    assert!((150..200).contains(&shared), "{shared} of 200 are shared");
    assert_eq!(copy.get(hash, |item| item.key == 7).unwrap().value, 0);
}
