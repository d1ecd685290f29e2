//! SHELL. Wait queues, wakers and alarms: the parts that the flyball crates use to wait. Guards no state itself.

mod alarm;
mod block_on;
mod wait_list;
mod wake_batch;
pub(crate) mod wakers;

pub use alarm::{Alarm, Alarmed, TimerCall, arm, waker};
pub use block_on::{ThreadSignal, block_on, block_on_timeout};
pub use wait_list::{Place, Released, WaitList};
pub use wake_batch::WakeBatch;
pub use wakers::{ContainedWaker, wake_all};
