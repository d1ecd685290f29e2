//! EDGE. An informer of a set, whatever its types.
//!
//! Cancel safety: that of the informer's waits.

use std::any::Any;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use crate::signal::synced::Synced;
use crate::{Informer, InformerStatus, Stopped};

pub(super) type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(super) trait Member: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn status(&self) -> InformerStatus;
    fn shut_down(&self);
    fn synced(&self) -> Wait<'_, Result<(), Stopped>>;

    /// The signal that it is over. It keeps nothing of the informer.
    fn over(&self) -> Arc<Synced>;

    /// Whether a shutdown was requested, or it has stopped: a request does not join it.
    fn is_stopping(&self) -> bool;
}

impl<K, V> Member for Informer<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn status(&self) -> InformerStatus {
        self.status()
    }

    fn shut_down(&self) {
        self.shut_down();
    }

    fn synced(&self) -> Wait<'_, Result<(), Stopped>> {
        Box::pin(self.synced())
    }

    fn over(&self) -> Arc<Synced> {
        self.over()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping()
    }
}
