//! Simulates a server whose latency increases with its load, and clients that send as many requests as their limits allow. The simulation runs on
//! virtual time, and its result is the same in every run. The tests use the simulation, and so does the program that draws a chart for the book.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use flyball_ratelimit::{AimdLimit, Outcome, Started};
use flyball_sync::Nanos;

/// The behaviour of the server during one phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// The end of the phase, in seconds since the start of the simulation.
    pub until: u64,
    /// The number of requests that the server processes concurrently; further requests wait in its queue.
    pub workers: usize,
    /// Whether the server refuses all requests.
    pub down: bool,
}

/// What one client measured in one second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// The client's limit on requests in flight, at the end of the second.
    pub limit: u32,
    /// Requests that were answered.
    pub answered: u32,
    /// Requests that were refused.
    pub refused: u32,
    /// The median latency of the responses.
    pub median: Duration,
}

/// A client that starts at a given time of the simulation.
#[derive(Debug)]
pub struct Client {
    /// The client's limit on requests in flight.
    pub limit: AimdLimit,
    /// The start of the client, in seconds since the start of the simulation.
    pub from: u64,
}

/// The average time in which the server processes one request, without the time in its queue. The actual times differ from it by up to 10 %.
pub const WORK: Duration = Duration::from_millis(50);
const SECOND: u64 = 1_000_000_000;
const REFUSAL: u64 = 5_000_000;

struct Server {
    /// For each worker, the time at which it is free.
    free_at: BinaryHeap<Reverse<u64>>,
    down: bool,
    random: u64,
}

impl Server {
    fn become_as(&mut self, phase: Phase, now: u64) {
        self.down = phase.down;
        while self.free_at.len() > phase.workers {
            self.free_at.pop();
        }
        while self.free_at.len() < phase.workers {
            self.free_at.push(Reverse(now));
        }
    }

    /// Returns the time at which a request is answered, and whether it is refused.
    fn answer(&mut self, now: u64) -> (u64, bool) {
        if self.down {
            return (now + REFUSAL, true);
        }
        let Reverse(free) = self.free_at.pop().expect("a server has workers");
        // Knuth's linear congruential generator. Any deterministic generator could be used.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let work = WORK.as_nanos() as u64;
        let done = free.max(now) + work * 9 / 10 + (self.random >> 33) % (work / 5);
        self.free_at.push(Reverse(done));
        (done, false)
    }
}

/// Simulates all phases. Returns, for each client, what it measured in each second.
pub fn run(mut clients: Vec<Client>, phases: &[Phase]) -> Vec<Vec<Second>> {
    let seconds = phases.last().map_or(0, |phase| phase.until);
    let mut server = Server { free_at: BinaryHeap::new(), down: false, random: 1 };
    // The requests in flight: the time of the response, the number of the request, the client, the time of the request, and whether it is refused.
    let mut answers = BinaryHeap::new();
    let mut operations: Vec<Option<Started>> = Vec::new();
    let mut report = vec![Vec::new(); clients.len()];
    for second in 0..seconds {
        let (begin, end) = (second * SECOND, (second + 1) * SECOND);
        let phase = phases.iter().find(|phase| second < phase.until).expect("phases cover the time");
        server.become_as(*phase, begin);
        let mut latencies = vec![Vec::new(); clients.len()];
        let mut refused = vec![0; clients.len()];
        let mut now = begin;
        loop {
            for (number, client) in clients.iter_mut().enumerate().filter(|(_, client)| client.from <= second)
            {
                while let Some(started) = client.limit.start(Nanos::new(now)) {
                    let (at, refusal) = server.answer(now);
                    answers.push(Reverse((at, operations.len(), number, now, refusal)));
                    operations.push(Some(started));
                }
                client.limit.check().expect("invariants");
            }
            match answers.peek() {
                Some(&Reverse((at, operation, number, began, refusal))) if at < end => {
                    now = at;
                    answers.pop();
                    let started = operations[operation].take().expect("answered once");
                    let outcome = if refusal { Outcome::Failure } else { Outcome::Success };
                    clients[number].limit.end(started, outcome, Nanos::new(now));
                    match refusal {
                        true => refused[number] += 1,
                        false => latencies[number].push(now - began),
                    }
                }
                _ => break,
            }
        }
        for (number, latencies) in latencies.iter_mut().enumerate() {
            latencies.sort_unstable();
            let median = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
            report[number].push(Second {
                limit: clients[number].limit.limit(),
                answered: latencies.len() as u32,
                refused: refused[number],
                median: Duration::from_nanos(median),
            });
        }
    }
    report
}
