//! The time from a write to the start of a reconcile that reads the written object.
//!
//! The clock starts when the request is sent, so the measured time includes the server's time, which is the same for all implementations.

use std::env::current_exe;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::Options;
use crate::objects::{CHANGING, name, number};
use crate::parties::{Work, start};
use crate::usage::now;

const LIMIT: Duration = Duration::from_secs(120);
/// The name of the data field of an object that contains the time at which its last change was sent to the server.
const SENT: &str = "sent";

struct Changes {
    /// For each object, the value of its field `sent` in the state that was reconciled last; `None` before the first reconcile.
    seen: Mutex<Vec<Option<Duration>>>,
    left: AtomicUsize,
    all: Notify,
    waits: Mutex<Vec<Duration>>,
}

impl Work for Changes {
    fn reconcile(&self, object: &ConfigMap) {
        let now = now();
        let Some(number) = number(object) else { return };
        let sent = object.data.as_ref().and_then(|data| data.get(SENT)?.parse().ok());
        let sent = Duration::from_nanos(sent.unwrap_or_default());
        match self.seen.lock()[number].replace(sent) {
            // Ordering: Relaxed; the counter publishes no other memory.
            None if self.left.fetch_sub(1, Ordering::Relaxed) == 1 => self.all.notify_one(),
            Some(before) if before != sent => self.waits.lock().push(now - sent),
            _ => {}
        }
    }
}

pub(crate) async fn latency(options: &Options) -> Result<()> {
    let client = Client::try_default().await?;
    let changes = Arc::new(Changes {
        seen: Mutex::new(vec![None; CHANGING.count]),
        left: AtomicUsize::new(CHANGING.count),
        all: Notify::new(),
        waits: Mutex::default(),
    });
    start(options.party, CHANGING.api(&client), changes.clone());
    timeout(LIMIT, changes.all.notified()).await.context("not all objects were reconciled in time")?;
    let mut writer = Command::new(current_exe()?);
    writer.args(["write", &format!("--rate={}", options.rate), &format!("--seconds={}", options.seconds)]);
    let written = writer.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    ensure!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    // The last writes may not have been reconciled yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut waits = std::mem::take(&mut *changes.waits.lock());
    let writes = (options.rate * options.seconds) as usize;
    // Several changes of one object may lead to one reconcile.
    ensure!(waits.len() * 100 >= writes * 95, "{} of {writes} writes were seen", waits.len());
    waits.sort_unstable();
    let at = |percent: usize| waits[(waits.len() * percent / 100).min(waits.len() - 1)].as_secs_f64() * 1e6;
    println!("{}", json!({"p50": at(50), "p99": at(99), "max": at(100)}));
    Ok(())
}

/// Writes at a fixed rate to objects drawn at random. A write does not wait for the previous one.
pub(crate) async fn write(options: &Options) -> Result<()> {
    let client = Client::try_default().await?;
    let api = CHANGING.api(&client);
    // This request opens the connection, so that the first write need not wait for it.
    api.list(&ListParams::default().limit(1)).await?;
    let mut ticks = interval(Duration::from_secs(1) / options.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut writes, mut draw) = (JoinSet::new(), 1_u64);
    for _ in 0..options.rate * options.seconds {
        ticks.tick().await;
        // Knuth's linear congruential generator. Only the high bits of its state are used, because the low bits repeat after a short period.
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = name((draw >> 33) as usize % CHANGING.count);
        let api = api.clone();
        writes.spawn(async move {
            let patch = json!({"data": {SENT: now().as_nanos().to_string()}});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
        });
    }
    while let Some(written) = writes.join_next().await {
        written??;
    }
    Ok(())
}
