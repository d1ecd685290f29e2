//! Finds free loopback ports. A server that cannot choose a free port itself and report it gets its port from here.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// The first port of the range. The range is below the ports that systems use for outgoing connections. Otherwise, a client that repeatedly tries to
/// connect to a stopped server could get the server's port as its local port, and so connect to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// Returns a port on which no process listens.
///
/// A different process may bind the port before the server does. Each process starts its search at a different port, so two processes that start
/// clusters at the same time seldom try the same port.
pub(crate) fn free() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = process::id().wrapping_mul(611);
    (0..COUNT)
        .find_map(|_| {
            // Ordering: Relaxed; each caller only needs a unique number, and reads no other memory.
            let at = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % u32::from(COUNT);
            let port = FIRST + u16::try_from(at).expect("below COUNT");
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(port)
        })
        .context("every port is taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_listened_on_is_not_free() {
        let held = free().and_then(|port| Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?)).unwrap();
        let taken = held.local_addr().unwrap().port();
        // `COUNT` calls try each port of the range at least once.
        assert!((0..COUNT).all(|_| free().unwrap() != taken));
    }
}
