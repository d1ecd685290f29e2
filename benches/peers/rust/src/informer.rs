//! One informer and its subscribers.
//!
//! | file | |
//! |---|---|
//! | listeners | tasks that receive changes from flyball's informer and from kube-runtime's shared reflector |
//! | events | changes sent as fast as the informer processes them, to one or several listeners; beside a slow listener; while a listener joins late |
//! | relist | a relist |
//!
//! As in `controller.rs`, the sender, the informer and each listener are tasks of one runtime; in Go they are
//! goroutines.

mod events;
mod listeners;
mod relist;

use std::time::Instant;

use crate::Figures;
use crate::controller::runtime;
use crate::options::{Options, Run, Who};

/// Returns `None` if the party does not have this run.
pub(crate) fn run(options: &Options, run: Run, who: Who) -> Option<Figures> {
    match (run, who) {
        (Run::InformerEvents | Run::InformerSlowHandler | Run::InformerRelist, Who::Ours | Who::Kube)
        | (Run::InformerLateJoin, Who::Ours) => {}
        _ => return None,
    }
    let runtime = runtime(options);
    let (options, begin) = (options.clone(), Instant::now());
    let ran = runtime.spawn(async move {
        match run {
            Run::InformerEvents => events::events(&options, who).await,
            Run::InformerSlowHandler => events::slow_handler(&options, who, begin).await,
            Run::InformerLateJoin => events::late_join(&options, begin).await,
            _ => relist::relist(&options, who).await,
        }
    });
    let figures = runtime.block_on(ran).expect("it ends");
    runtime.shutdown_background();
    Some(figures)
}
