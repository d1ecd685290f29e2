//! EDGE. Runs the two controllers on a live cluster, with read-only access.
//!
//! | file | |
//! |---|---|
//! | read_only | the client, which can only list and watch four kinds |
//! | cut, source | the cluster's objects, reduced to the fields that recorded objects have |
//! | agreement | the results that the cluster reports, and for how long the results of flyball have differed from them |
//! | waits, summary | the displayed summary |
//!
//! Cancel safety: request a [`Stop`] to end a run, instead of dropping its future. After this request, the informers are shut down, the controllers
//! drain their queues until a time limit, and then all tasks are joined.

mod agreement;
mod cut;
mod read_only;
mod source;
mod summary;
mod waits;

use std::collections::VecDeque;
use std::io::{Write, stderr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::agreement::{Differing, reported};
use self::cut::Slice;
use self::source::{AnyKind, InformerFailure, Kind, Sources};
use self::summary::{Objects, Summary};
use self::waits::Waits;
use crate::args::Args;
use crate::controllers::{collect, count};
use crate::endpoints::{Endpoints, PODS_IN, SERVICES_IN};
use crate::faults::Injector;
use crate::ledger::Ledger;
use crate::objects::{Pod, ReplicaSet, Service};
use crate::progress::Progress;
use crate::replicas::{BY_OWNER, Replicas};
use crate::report::{Checked, compare};
use crate::stop::Stop;

pub(crate) use self::read_only::client;

/// The interval at which the summary is updated. It is displayed if stderr is a terminal; otherwise, a line is printed for the first of every
/// [`LOOKS_A_LINE`] updates.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_A_LINE: u32 = 5;

/// The rate of events is computed over the last period of this length.
const RATE: Duration = Duration::from_secs(5);

/// Runs the controllers until a stop is requested, the time limit is reached, or the cluster refuses a request.
pub(crate) async fn run(client: kube::Client, args: &Args, stop: &Stop) -> anyhow::Result<Summary> {
    let (sender, mut failures) = mpsc::unbounded_channel();
    let sources = Sources::new(client, sender);
    let mut live = Live::start(&sources)?;
    let faults = Arc::new(Injector::new(args, 0));
    let counting = count(&live.replicas, &faults, args, stop);
    let collecting = collect(&live.endpoints, &faults, args, stop);

    let display = Progress::lines();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    let mut over = std::pin::pin!(sleep(args.seconds.unwrap_or(Duration::MAX)));
    let mut trouble = None;
    let refused = loop {
        tokio::select! {
            biased;
            () = stop.requested() => break None,
            () = &mut over => break None,
            Some(failure) = failures.recv() => match failure {
                InformerFailure::Refused(words) => break Some(words),
                InformerFailure::Temporary(words) => trouble = Some((Instant::now(), words)),
            },
            _ = looks.tick() => {
                trouble = trouble.filter(|(at, _)| at.elapsed() < 10 * LOOK);
                let summary = live.update(trouble.as_ref().map(|(_, words)| words.clone()));
                match &display {
                    Some(display) => display.show(summary.text()),
                    // An error is ignored: it means that stderr is closed, so that the summary cannot be displayed.
                    None if number % LOOKS_A_LINE == 0 => drop(writeln!(stderr(), "{}", summary.line())),
                    None => {}
                }
                number += 1;
            }
        }
    };
    let summary = live.update(None);
    live.kinds().iter().for_each(|kind| kind.shut_down());
    for running in [counting, collecting] {
        match running.await.context("a controller")? {
            // A cache that has not synced is not an error here: the run was stopped before the first lists were complete.
            Err(flyball_controller::RunError::CacheEnded(cache)) if !cache.synced && !summary.synced => {}
            ended => drop(ended.context("a controller")?),
        }
    }
    for kind in live.kinds() {
        kind.stopped().await;
    }
    if let Some(display) = display {
        display.done();
    }
    match refused {
        Some(words) => bail!("the cluster refuses: {words}\n{}", read_only::NEEDED),
        None => Ok(summary),
    }
}

/// The four informers, the data of the two controllers, and what has been observed so far.
struct Live {
    pods: Kind<Pod>,
    services: Kind<Service>,
    replicasets: Kind<ReplicaSet>,
    slices: Kind<Slice>,
    replicas: Arc<Replicas>,
    endpoints: Arc<Endpoints>,
    begin: Instant,
    waits: Waits,
    differing: Differing,
    /// The times of the last updates of the summary, each with the number of events until this time.
    events: VecDeque<(Duration, u64)>,
}

impl Live {
    fn start(sources: &Sources) -> anyhow::Result<Self> {
        let pods = sources.start("pods", cut::pod, &[&BY_OWNER, &PODS_IN])?;
        let services = sources.start("services", cut::service, &[&SERVICES_IN])?;
        let replicasets = sources.start("replicasets", cut::replicaset, &[])?;
        let slices = sources.start("endpointslices", cut::slice, &[])?;
        let replicas = Arc::new(Replicas {
            pods: pods.cache.clone(),
            replicasets: replicasets.cache.clone(),
            ledger: Ledger::new(),
        });
        let endpoints = Arc::new(Endpoints {
            pods: pods.cache.clone(),
            services: services.cache.clone(),
            ledger: Ledger::new(),
        });
        Ok(Self {
            pods,
            services,
            replicasets,
            slices,
            replicas,
            endpoints,
            begin: Instant::now(),
            waits: Waits::default(),
            differing: Differing::default(),
            events: [(Duration::ZERO, 0)].into(),
        })
    }

    fn kinds(&self) -> [&dyn AnyKind; 4] {
        [&self.pods, &self.services, &self.replicasets, &self.slices]
    }

    fn update(&mut self, trouble: Option<String>) -> Summary {
        let now = self.begin.elapsed();
        for waits in [self.replicas.ledger.take_waits(), self.endpoints.ledger.take_waits()] {
            waits.into_iter().for_each(|wait| self.waits.add(wait));
        }
        let (replicasets, services, slices) =
            (self.replicasets.cache.snapshot(), self.services.cache.snapshot(), self.slices.cache.snapshot());
        let objects = Objects {
            pods: self.pods.cache.snapshot().len(),
            services: services.len(),
            replicasets: replicasets.len(),
            endpointslices: slices.len(),
        };
        let synced = self.kinds().iter().all(|kind| kind.is_synced());
        // The results are not compared until all kinds have been listed, because objects that have not been listed yet would count as differences.
        let (expected, differences) = if synced {
            let expected = reported(
                replicasets.objects().map(|replicaset| &***replicaset),
                services.objects().map(|service| &***service),
                slices.objects().map(|slice| &***slice),
            );
            let (counts, addresses) = (self.replicas.ledger.stored(), self.endpoints.ledger.stored());
            let differences = compare(&expected, &counts, &addresses);
            (expected, differences)
        } else {
            Default::default()
        };
        let checked = Checked::of(&expected);
        let events = self.kinds().iter().map(|kind| kind.events()).sum();
        Summary {
            seconds: now.as_secs_f64(),
            synced,
            objects,
            skipped: self.kinds().iter().map(|kind| kind.skipped()).sum(),
            events,
            events_per_second: self.rate(now, events),
            reconciles: self.waits.count(),
            relists: self.kinds().iter().map(|kind| kind.relists()).sum(),
            queue_latency_us: self.waits.latency(),
            checked,
            agree: agreement::agree(checked, &differences),
            differences: differences.len(),
            lasting: self.differing.update(now, differences),
            trouble,
        }
    }

    /// Returns the number of events per second, over the period [`RATE`].
    fn rate(&mut self, now: Duration, events: u64) -> f64 {
        while self.events.len() > 1 && self.events[1].0 + RATE <= now {
            self.events.pop_front();
        }
        let (since, before) = self.events[0];
        self.events.push_back((now, events));
        let seconds = (now - since).as_secs_f64();
        if seconds > 0.0 { (events - before) as f64 / seconds } else { 0.0 }
    }
}
