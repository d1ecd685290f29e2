//! The start of a controller: the time until it has listed all objects and reconciled each once, and the CPU time and
//! memory since the start of the process.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::Party;
use crate::objects::{MANY, number};
use crate::parties::{Work, start};
use crate::usage::{cpu, now, peak};

const LIMIT: Duration = Duration::from_secs(120);

/// The objects that have been reconciled.
struct Seen {
    seen: Vec<AtomicBool>,
    left: AtomicUsize,
    all: Notify,
}

impl Work for Seen {
    fn reconcile(&self, object: &ConfigMap) {
        black_box(&object.metadata.resource_version);
        let Some(number) = number(object) else { return };
        // Ordering: Relaxed; the atomics publish no other memory, and the notification orders the last reconcile before the end of the wait.
        if !self.seen[number].swap(true, Ordering::Relaxed) && self.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            self.all.notify_one();
        }
    }
}

pub(crate) async fn sync(party: Party) -> Result<()> {
    let client = Client::try_default().await?;
    let seen = Arc::new(Seen {
        seen: (0..MANY.count).map(|_| AtomicBool::new(false)).collect(),
        left: AtomicUsize::new(MANY.count),
        all: Notify::new(),
    });
    let begin = now();
    start(party, MANY.api(&client), seen.clone());
    timeout(LIMIT, seen.all.notified()).await.context("not all objects were reconciled in time")?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{}", json!({"time": millis(now() - begin), "cpu": millis(cpu()), "memory": peak()}));
    Ok(())
}
