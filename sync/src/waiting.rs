//! SHELL. What waits, and how it is woken; the parts of the family's ways to wait. It guards nothing itself.

mod alarm;
mod block_on;
mod wait_list;
mod wake_batch;

pub use alarm::{Alarm, Alarmed, arm, waker};
pub use block_on::{ThreadSignal, block_on, block_on_timeout};
pub use wait_list::{Left, Place, WaitList};
pub use wake_batch::WakeBatch;
