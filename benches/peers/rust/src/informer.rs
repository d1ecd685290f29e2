//! One informer and who listens to it.
//!
//! | file | |
//! |---|---|
//! | listeners | who listens, to ours and to kube-runtime's shared reflector |
//! | events | changes as fast as they are taken, to one or several listeners; beside a slow one; while one comes late |
//! | relist | a complete list once more |
//!
//! As in `controller.rs`, who sends, the informer and each listener are tasks of one runtime, as they are goroutines in Go.

mod events;
mod listeners;
mod relist;

use std::time::Instant;

use crate::Figures;
use crate::controller::runtime;
use crate::options::{Options, Run, Who};

/// `None`: these do not go together.
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
