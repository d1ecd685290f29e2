//! Tests of the capacity, `add_many`, and adds that wait for capacity.

use super::*;
use crate::queue_answers::AddManyOutcome;
use crate::queue_setup::Mode;

fn room_for(keys: usize) -> OracleQueue<char> {
    OracleQueue::new(OracleSetup { capacity: Some(keys), ..with_limiter() })
}

#[test]
fn a_new_key_is_refused_when_there_is_no_room() {
    let mut queue = room_for(3);
    queue.add('l', 0).unwrap();
    queue.try_get(0).unwrap();
    queue.add_after('w', ns(5), 0).unwrap();
    queue.add('r', 0).unwrap();
    assert_eq!(queue.add('n', 0), Err(Refused::Full));
    assert_eq!(queue.add_after_with('n', ns(5), Mode::Replace, 0), Err(Refused::Full));
    assert_eq!(queue.add_rate_limited('n', 0), Err(Refused::Full));
    assert_eq!(queue.requeues('n'), 1, "the failure is counted although the add is refused");
    assert_eq!(queue.add('l', 0), Ok(Outcome::Marked));
    assert_eq!(queue.add('w', 0), Ok(Outcome::Promoted));
    assert_eq!(queue.add('r', 0), Ok(Outcome::Merged));
    queue.end('l', Ending::Done, 0);
    assert_eq!(queue.add_when_room('n', 0), None);
    assert!(queue.cancel('w', 0));
    assert_eq!(queue.add_when_room('n', 0), Some(Ok(Outcome::New)));
    queue.shut_down(0);
    assert_eq!(queue.add('m', 0), Err(Refused::ShutDown));
    assert_eq!(queue.add_when_room('m', 0), Some(Err(Refused::ShutDown)));
}

#[test]
fn many_adds_are_adds_one_after_the_other() {
    let mut queue = room_for(3);
    queue.add('l', 0).unwrap();
    queue.try_get(0).unwrap();
    queue.add_after('w', ns(5), 0).unwrap();
    let many = queue.add_many(&['l', 'n', 'm', 'n', 'w', 'k'], 0);
    let refused = vec![('m', Refused::Full), ('k', Refused::Full)];
    assert_eq!(many, AddManyOutcome { new: 1, merged: 1, promoted: 1, marked: 1, refused });
    assert_eq!(queue.dequeue_order(), ['n', 'w']);
}
