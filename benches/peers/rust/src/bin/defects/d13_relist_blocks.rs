//! D13: readers are blocked while a relist drops the old objects, and the relist stores all objects twice.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kube::Api;

use crate::cache::{Cache, Flyball, KubeRuntime};
use crate::counted::{self, Counted};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, in_pages, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D13",
    is: "the end of a relist blocks all readers, and all objects are in memory twice",
    measured: "relist of 1000 objects in pages of 100, 10 of them changed: whether a read returns within half a second while an old object is dropped; the largest number of objects in memory",
    theirs: program::<KubeRuntime<Counted>>,
    ours: program::<Flyball<Counted>>,
};

const OBJECTS: usize = 1000;

fn program<C: Cache<Counted>>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        let value = |number: usize| if number.is_multiple_of(100) { "old" } else { "" };
        for number in 0..OBJECTS {
            server.put(&config_map(&format!("a{number:03}"), value(number)));
        }
        let (cache, _) = C::start(Api::all(server.client()), in_pages(100), 0);
        cache.ready().await;
        pass(SECOND).await;
        counted::reset();

        let (noted, reader) = (log.clone(), cache.clone());
        counted::at_end("old", move || {
            let (answered, answer) = mpsc::channel();
            thread::spawn(move || {
                // The error is ignored, because the receiver may have timed out.
                let _ = answered.send(reader.get("a001").is_some());
            });
            noted.note(answer.recv_timeout(Duration::from_millis(500)) == Ok(true));
        });
        server.close_watches();
        for number in (0..OBJECTS).step_by(100) {
            server.put(&config_map(&format!("a{number:03}"), "new"));
        }
        server.compact();
        pass(300 * SECOND).await;
        let answered = log.take().pop().expect("no old object was dropped");
        let most = counted::most();
        let words = if answered { "yes" } else { "no" };
        Finding::new(format!("{words}; {most}"), !answered || most >= 2 * OBJECTS)
    })
}
