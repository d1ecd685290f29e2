#![no_main]

use std::collections::BTreeSet;

use checked::request_rebuild;
use flyball_workqueue::Queue;
use libfuzzer_sys::fuzz_target;

const PAGES: [&str; 4] = ["index", "about", "news", "shop"];

// Each byte is an operation: request a rebuild of a page, or do the next rebuild. A `BTreeSet` is the oracle.
fuzz_target!(|bytes: &[u8]| {
    let (queue, mut requested) = (Queue::new(), BTreeSet::new());
    for byte in bytes {
        let page = PAGES[usize::from(byte % 4)];
        if byte & 4 == 0 {
            assert_eq!(request_rebuild(&queue, page), requested.insert(page));
        } else if let Ok(lease) = queue.try_get() {
            assert!(requested.remove(*lease));
            lease.succeed();
        } else {
            assert!(requested.is_empty());
        }
        queue.check().expect("the queue is consistent");
    }
});
