//! A config map type whose clones and live instances are counted, and that can run a function when an instance is dropped. The counts are
//! thread-local, so each test has its own.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// A value, and a function that is called once, when the next object with this value is dropped.
type DropHook = (String, Box<dyn FnOnce()>);

thread_local! {
    static ALIVE: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
    static COPIES: Cell<usize> = const { Cell::new(0) };
    static AT_END: RefCell<Option<DropHook>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub(crate) struct CountedMap(ConfigMap);

impl CountedMap {
    fn new(object: ConfigMap) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        MOST.set(MOST.get().max(ALIVE.get()));
        Self(object)
    }
}

/// Resets the counts.
pub(crate) fn reset() {
    COPIES.set(0);
    MOST.set(ALIVE.get());
}

pub(crate) fn copies() -> usize {
    COPIES.get()
}

/// Returns the largest number of instances that were alive at one time.
pub(crate) fn most() -> usize {
    MOST.get()
}

/// Registers `work`, which runs once, on the thread that drops the next object with this value.
pub(crate) fn on_drop(value: &str, work: impl FnOnce() + 'static) {
    AT_END.set(Some((value.to_owned(), Box::new(work))));
}

impl Clone for CountedMap {
    fn clone(&self) -> Self {
        COPIES.set(COPIES.get() + 1);
        Self::new(self.0.clone())
    }
}

impl Drop for CountedMap {
    fn drop(&mut self) {
        // The count is wrong for an object that was created on a different thread; such an object must not make the subtraction overflow. An object
        // that is dropped while its thread ends is not counted.
        let _ = ALIVE.try_with(|alive| alive.set(alive.get().saturating_sub(1)));
        let value = super::value(&self.0);
        let work = AT_END.try_with(|on_drop| on_drop.borrow_mut().take_if(|(awaited, _)| *awaited == value));
        if let Ok(Some((_, work))) = work {
            work();
        }
    }
}

impl<'de> Deserialize<'de> for CountedMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ConfigMap::deserialize(deserializer).map(Self::new)
    }
}

impl Resource for CountedMap {
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
