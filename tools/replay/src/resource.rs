//! EDGE. One resource of a pass: its informer, which watches the recorded cluster.
//!
//! Cancel safety: a dropped future only stops its wait.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use flyball_informer_cache::{Index, Informer, ReflectorBackoff, ReflectorConfig, Version};

use crate::objects::{Object, schema};
use crate::server::{Cluster, Recorded};
use crate::trace::Stream;

/// The informer of a resource, keyed by `namespace/name`.
pub(crate) type Cache<V> = Informer<Arc<str>, Arc<V>>;

type Waiting<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>>;

/// One resource of a pass.
pub(crate) struct Resource<V> {
    name: &'static str,
    pub(crate) cache: Cache<V>,
    /// The version of the last event of this resource in the trace.
    last: Version,
}

/// A resource, as a trait without the type of its objects, so that different resources can be used in the same way.
pub(crate) trait AnyResource: Send + Sync {
    /// Waits until the first list is in the cache.
    fn synced(&self) -> Waiting<'_>;
    /// Waits until the cache has applied the last event of this resource in the trace.
    fn caught_up(&self) -> Waiting<'_>;
    fn shut_down(&self);
    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Returns the number of lists after the first one.
    fn relists(&self) -> u64;
}

impl<V: Object> Resource<V> {
    /// Starts an informer of the resource whose data is `stream`. `number` is the number of the resource.
    pub(crate) fn start(
        name: &'static str,
        number: usize,
        stream: &Arc<Stream<V>>,
        cluster: &Arc<Cluster>,
        indexes: &[&'static Index<Arc<V>, Arc<str>>],
        seed: u64,
    ) -> anyhow::Result<Self> {
        let source = Recorded::new(cluster, number, stream);
        let mut builder = Informer::builder(schema(), source)
            .reflector_config(config())
            .seed(seed.wrapping_add(number as u64));
        for index in indexes {
            builder = builder.index(*index);
        }
        let cache = builder.start().with_context(|| format!("the informer of {name}"))?;
        let mut result = stream.records.iter().filter(|record| cluster.lose != Some(record.place));
        let last = result.next_back().map_or(stream.version, |record| record.version);
        Ok(Self { name, cache, last })
    }
}

impl<V: Object> AnyResource for Resource<V> {
    fn synced(&self) -> Waiting<'_> {
        Box::pin(async {
            self.cache.synced().await.with_context(|| format!("the informer of {}", self.name))
        })
    }

    fn caught_up(&self) -> Waiting<'_> {
        Box::pin(async {
            let result = self.cache.store().wait_for_version(self.last).await;
            result.map_err(|error| {
                anyhow!("the informer of {}: {error}; {:?}", self.name, self.cache.status())
            })?;
            Ok(())
        })
    }

    fn shut_down(&self) {
        self.cache.shut_down();
    }

    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.cache.stopped())
    }

    fn relists(&self) -> u64 {
        self.cache.status().relists
    }
}

/// The default settings of an informer, with two changes: the pages are smaller, so that a list has several pages, and the delays are shorter,
/// because a trace is played in a fraction of a second.
fn config() -> ReflectorConfig {
    let millis = Duration::from_millis;
    let backoff = ReflectorBackoff {
        initial: millis(1),
        max: millis(8),
        reset_after: millis(20),
        ..ReflectorBackoff::default()
    };
    ReflectorConfig { page_size: NonZeroU32::new(200), backoff, ..ReflectorConfig::default() }
}
