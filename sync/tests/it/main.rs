//! One binary for all integration tests of the crate.

mod alarm;
mod block_on;
mod hostile_wakers;
mod thread_timer;
mod time;
mod wait_list;
mod wake_batch;

#[test]
#[should_panic = "not built for a model checker"]
fn assert_modelled_fails_in_an_ordinary_build() {
    flyball_sync::assert_modelled();
}
