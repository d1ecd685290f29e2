//! Concurrent operations and their allowed results: the results of the same steps in any sequential order.

use std::collections::BTreeSet;
use std::sync::mpsc;

use crate::queue_ops::op::Op;
use crate::queue_ops::scene::{Scene, Start};
use crate::queue_ops::task::{For, Task};
use crate::{once, thread};

/// Operations that run concurrently, and the state of the queue in which they start.
#[derive(Clone, Debug)]
pub struct Case {
    /// The initial state of the queue.
    pub start: Start,
    /// The operations, which run concurrently.
    pub ops: Vec<Op>,
}

impl Case {
    /// Returns the name of the case, and the body of the model.
    pub fn body(self) -> (String, impl Fn() + Send + Sync + 'static) {
        let name = format!("{:?}, {:?}", self.start, self.ops);
        let allowed = self.allowed();
        (name, move || {
            let seen = if self.blocks() { self.block() } else { self.at_once() };
            assert!(
                allowed.contains(&seen),
                "no order of the steps has this result:\n{seen}\nbut:\n{allowed:#?}"
            );
        })
    }

    fn blocks(&self) -> bool {
        self.ops.iter().any(|op| op.blocks())
    }

    fn tasks(&self, scene: &mut Scene, stepwise: bool) -> Vec<Task> {
        (1..).zip(&self.ops).map(|(side, op)| scene.task(*op, side, stepwise)).collect()
    }

    fn at_once(&self) -> String {
        let mut scene = Scene::new(self.start, &self.ops, true);
        let mut tasks = self.tasks(&mut scene, false).into_iter();
        let mut own = tasks.next().expect("the case has no operation");
        let spawn = |mut task: Task| {
            thread::spawn(move || {
                task.poll();
                task
            })
        };
        let others: Vec<_> = tasks.map(spawn).collect();
        own.poll();
        scene.tasks.push(own);
        scene.tasks.extend(others.into_iter().map(|thread| thread.join().unwrap()));
        scene.end()
    }

    /// Runs the case with threads that block. At the end the queue is stopped, which ends all remaining waits. If a
    /// thread must return earlier, the case joins it before the stop, so that the stop does not hide a lost wake-up.
    fn block(&self) -> String {
        let mut scene = Scene::new(self.start, &self.ops, false);
        let mut threads = Vec::new();
        for (mut task, op) in self.tasks(&mut scene, false).into_iter().zip(&self.ops) {
            if op.blocks() {
                let waits_for = op.waits_for();
                let handle = thread::spawn(move || {
                    task.poll();
                    task
                });
                threads.push((waits_for, handle));
            } else {
                task.poll();
                scene.tasks.push(task);
            }
        }
        let mut back = Vec::new();
        let mut gather = |scene: &mut Scene| {
            scene.settle();
            // Joins a blocking thread only if it is the only one. If there are two, one may have taken the key for which the other waits, so a join
            // may never return.
            if let [(waits_for, _)] = threads[..] {
                if scene.has_come(waits_for) {
                    back.extend(threads.pop().map(|(_, thread)| thread.join().unwrap()));
                }
            }
        };
        gather(&mut scene);
        scene.end_leases();
        gather(&mut scene);
        scene.stop_now();
        // Threads that wait for an idle queue are joined last, because the queue is not idle while a key is leased.
        threads.sort_by_key(|(waits_for, _)| *waits_for == For::Idle);
        for (waits_for, thread) in threads {
            if waits_for == For::Idle {
                scene.settle();
                back.iter_mut().for_each(|task| scene.adopt(task));
                scene.end_leases();
            }
            back.push(thread.join().unwrap());
        }
        scene.tasks.extend(back);
        scene.stopped()
    }

    /// Returns the allowed outcomes: those of all sequential orders of the steps.
    fn allowed(&self) -> BTreeSet<String> {
        let (sender, receiver) = mpsc::channel();
        let mut steps: Vec<usize> = self.ops.iter().map(|op| op.steps()).collect();
        if self.blocks() {
            // Shutting down a queue takes two steps.
            steps.push(2);
        }
        // Runs the orders in groups of eight, because loom bounds the number of scheduling points of one run.
        for orders in orders(&steps).chunks(8) {
            let (case, orders, sender) = (self.clone(), orders.to_vec(), sender.clone());
            once(move || orders.iter().for_each(|order| sender.send(case.in_order(order)).unwrap()));
        }
        drop(sender);
        receiver.into_iter().collect()
    }

    fn in_order(&self, order: &[usize]) -> String {
        let mut scene = Scene::new(self.start, &self.ops, !self.blocks());
        let mut tasks = self.tasks(&mut scene, true);
        for (at, &who) in order.iter().enumerate() {
            let later = &order[at + 1..];
            if let Some(task) = tasks.get_mut(who) {
                task.poll();
                continue;
            }
            // This is a step of the shutdown that a case with blocking threads has in addition to its operations. Operations without a further step
            // in this order are polled before it: like a blocked thread, each of them waits until it can return.
            for (side, task) in tasks.iter_mut().enumerate() {
                if !later.contains(&side) {
                    task.poll();
                }
                if !self.ops[side].blocks() {
                    scene.adopt(task);
                }
            }
            if later.contains(&who) {
                scene.end_leases();
            } else {
                scene.stop_now();
            }
        }
        scene.tasks.extend(tasks);
        if self.blocks() { scene.stopped() } else { scene.end() }
    }
}

/// Returns all interleavings of sequences with the given numbers of steps.
fn orders(steps: &[usize]) -> Vec<Vec<usize>> {
    if steps.iter().all(|left| *left == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for who in (0..steps.len()).filter(|who| steps[*who] > 0) {
        let mut rest = steps.to_vec();
        rest[who] -= 1;
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, who);
            order
        }));
    }
    all
}
