//! Each burst of events becomes one run, and no event is delayed for longer than a quarter of a second.
//!
//! `cargo run -p flyball-workqueue --example debounce`. The clock is moved by hand, so the example does not wait.

use std::time::Duration;

use flyball_workqueue::{AddOptions, Clock, DelayMode, ManualClock, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let millis = Duration::from_millis;
    let clock = ManualClock::new();
    let queue = Queue::<&str>::builder().timer(clock.timer()).build();
    let debounce = DelayMode::Debounce { max_wait: millis(250) };

    let mut runs = 0;
    for millisecond in 0..2000 {
        // Two bursts with an event every 20 ms: one lasts 100 ms, the other 500 ms.
        let in_burst = millisecond < 100 || (1000..1500).contains(&millisecond);
        if in_burst && millisecond % 20 == 0 {
            queue.add_with(
                "config.toml",
                AddOptions { delay: millis(50), mode: debounce, ..AddOptions::default() },
            )?;
        }
        if let Ok(lease) = queue.try_get() {
            println!("{:>4} ms: {}", clock.now().get() / 1_000_000, *lease);
            lease.done();
            runs += 1;
        }
        clock.advance(millis(1));
    }
    assert_eq!(runs, 3, "not one run for the short burst and two for the long one");
    Ok(())
}
