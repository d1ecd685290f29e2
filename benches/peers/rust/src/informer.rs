//! One informer and its subscribers.
//!
//! | file | |
//! |---|---|
//! | listeners | tasks that receive changes from flyball's informer and from kube-runtime's shared reflector |
//! | events | changes as fast as the informer processes them; changes while a listener is slow, or while listeners join late |
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
use crate::options::{Options, Party, Run};

/// Returns `None` if this run does not exist for `party`.
pub(crate) fn run(options: &Options, run: Run, party: Party) -> Option<Figures> {
    match (run, party) {
        (Run::InformerEvents | Run::InformerSlowHandler | Run::InformerRelist, Party::Ours | Party::Kube)
        | (Run::InformerLateJoin, Party::Ours) => {}
        _ => return None,
    }
    let runtime = runtime(options);
    let (options, begin) = (options.clone(), Instant::now());
    let ran = runtime.spawn(async move {
        match run {
            Run::InformerEvents => events::events(&options, party).await,
            Run::InformerSlowHandler => events::slow_handler(&options, party, begin).await,
            Run::InformerLateJoin => events::late_join(&options, begin).await,
            _ => relist::relist(&options, party).await,
        }
    });
    let figures = runtime.block_on(ran).expect("it ends");
    runtime.shutdown_background();
    Some(figures)
}
