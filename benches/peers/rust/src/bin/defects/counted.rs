//! A config map that counts its clones and live instances, and runs a callback when an instance is dropped.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};

static ALIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static COPIES: AtomicUsize = AtomicUsize::new(0);

/// The value of an object, and a callback that runs once, when an object with this value is dropped.
type AtEnd = (String, Box<dyn FnOnce() + Send>);
static AT_END: Mutex<Option<AtEnd>> = Mutex::new(None);

#[derive(Debug)]
pub(crate) struct Counted(ConfigMap);

impl Counted {
    fn new(object: ConfigMap) -> Self {
        MOST.fetch_max(ALIVE.fetch_add(1, Relaxed) + 1, Relaxed);
        Self(object)
    }
}

/// Resets the counters.
pub(crate) fn reset() {
    COPIES.store(0, Relaxed);
    MOST.store(ALIVE.load(Relaxed), Relaxed);
}

pub(crate) fn copies() -> usize {
    COPIES.load(Relaxed)
}

/// The largest number of instances alive at one time.
pub(crate) fn most() -> usize {
    MOST.load(Relaxed)
}

/// Runs `work` when the next object with this value is dropped, on the thread that drops it.
pub(crate) fn at_end(value: &str, work: impl FnOnce() + Send + 'static) {
    *AT_END.lock() = Some((value.to_owned(), Box::new(work)));
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        COPIES.fetch_add(1, Relaxed);
        Self::new(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
        let value = crate::world::value(&self.0);
        let work = AT_END.lock().take_if(|(awaited, _)| *awaited == value);
        if let Some((_, work)) = work {
            work();
        }
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ConfigMap::deserialize(deserializer).map(Self::new)
    }
}

impl Resource for Counted {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::kind(dyntype)
    }

    fn group(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::group(dyntype)
    }

    fn version(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::version(dyntype)
    }

    fn plural(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::plural(dyntype)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
