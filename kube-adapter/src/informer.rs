//! EDGE. An informer of an `Api`. This module has no async code, so cancel safety does not apply.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_informer_cache::{Informer, InformerBuilder, NamespacedName, ReflectorConfig};
use kube::runtime::watcher::{self, InitialListStrategy, ListSemantic};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::{ApiSource, schema};

/// kube's default maximum duration of a watch, in seconds. It is shorter than the client's read timeout, because the client treats a connection on
/// which nothing arrives for 295 s as lost.
const LONGEST_WATCH: u32 = 290;

/// Returns an informer builder for the objects that `api` lists and `config` selects. The builder has an [`ApiSource`] and the configuration that
/// [`reflector_config`] returns.
///
/// Use the builder like that of any flyball informer: add indexes, a transformation or an error handler, and call `start()` in a tokio task.
///
/// # Examples
/// ```no_run
/// use flyball_informer_cache::Index;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::{Api, Client, runtime::watcher};
///
/// static BY_NODE: Index<Pod, String> =
///     Index::many("node", |pod| pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect());
///
/// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let pods = flyball_kube::informer(Api::<Pod>::all(client), watcher::Config::default())
///     .index(&BY_NODE)
///     .on_error(|failure| eprintln!("pods: {failure}"))
///     .start()?;
/// pods.synced().await?;
/// println!("{} pods on node a", pods.store().by_index(&BY_NODE, "a")?.len());
/// # Ok(())
/// # }
/// ```
pub fn informer<K>(api: Api<K>, config: watcher::Config) -> InformerBuilder<NamespacedName, K, ApiSource<K>>
where
    K: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    ApiSource::new(api, config).into_informer()
}

pub(crate) fn over<K>(source: ApiSource<K>) -> InformerBuilder<NamespacedName, K, ApiSource<K>>
where
    K: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let (reflector, on_build) = (reflector_config(source.config()), source.on_build());
    Informer::builder(schema(), source).reflector_config(reflector).on_build(on_build)
}

/// Converts the list and watch options of a watcher's configuration to the configuration of a reflector. Timeouts and intervals that a watcher's
/// configuration does not have keep their defaults.
///
/// - `page_size`: the size of each page, in every list. An explicit 500 cannot be distinguished from kube's default, which is also 500. With this
///   size, the reflector requests pages of 500 objects if the server would otherwise read all objects from its storage at once, and an unpaged list
///   if the server can answer from its cache. [`InformerBuilder::page_size`] and [`Config::page_size`](crate::Config::page_size) request pages of 500
///   in every list. A page size of `None` or 0 turns paging off.
/// - `list_semantic`: applies to the first list only. Later lists request a state at least as new as that of the informer, and the server answers
///   them from its cache.
/// - `timeout`: how long a watch may last, 290 s by default. Each watch lasts a random time between half of the timeout and the whole timeout, so
///   that watches do not end together. The client's `read_timeout`, 295 s by default, must be longer, because the client treats a watch without
///   events as a lost connection. Zero, with which kube's watcher leaves the choice to the server, counts as an hour.
/// - `initial_list_strategy`: streaming lists or plain lists. If a streaming list has failed, plain lists are used instead.
///
/// # Examples
/// ```
/// use kube::runtime::watcher;
/// use std::time::Duration;
///
/// let config = watcher::Config::default().timeout(60).streaming_lists();
/// let reflector = flyball_kube::reflector_config(&config);
/// assert_eq!(reflector.min_watch_timeout, Duration::from_secs(30));
/// assert!(reflector.streaming_lists);
/// assert_eq!(reflector.page_size, None);
/// ```
#[must_use]
pub fn reflector_config(config: &watcher::Config) -> ReflectorConfig {
    let page_size =
        if config.page_size == watcher::Config::default().page_size { None } else { config.page_size };
    let longest = match config.timeout.unwrap_or(LONGEST_WATCH) {
        0 => 3600,
        seconds => seconds,
    };
    ReflectorConfig {
        page_size: page_size.and_then(NonZeroU32::new),
        unpaged: config.page_size.is_none_or(|size| size == 0),
        initial_list_most_recent: config.list_semantic == ListSemantic::MostRecent,
        // At least one second, because a watch that ends within one second counts as failed.
        min_watch_timeout: (Duration::from_secs(longest.into()) / 2).max(Duration::from_secs(1)),
        streaming_lists: config.initial_list_strategy == InitialListStrategy::StreamingList,
        ..ReflectorConfig::default()
    }
}
