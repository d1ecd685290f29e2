//! EDGE. An informer of a set, without its type parameters.
//!
//! Cancel safety: dropping a future of this module only stops waiting.

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

    /// Returns the signal that is set when the informer has ended. The signal does not keep the informer alive.
    fn ended_signal(&self) -> Arc<Synced>;

    /// Returns whether a shutdown was requested, or the informer has ended. If so, later requests for its name do not return this informer.
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

    fn ended_signal(&self) -> Arc<Synced> {
        self.ended_signal()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping()
    }
}
