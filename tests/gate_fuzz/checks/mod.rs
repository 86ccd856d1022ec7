//! The checks that `fuzz/` and `cargo test` share: whatever the input, they hold.

mod drain;
mod h1;
mod h1_reply;
mod h2;
mod wire;

pub use drain::check as drain;
pub use h1::check as h1;
pub use h1_reply::check as h1_reply;
pub use h2::check as h2;

use std::time::Duration;

/// Longer than anything takes: time is paused, so it is over once everybody waits.
const LIMIT: Duration = Duration::from_secs(60);

/// The most bytes of an input that are looked at.
const MOST: usize = 32 * 1024;

/// Numbers that look random, the same each time.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number under `limit`, which is at least one.
    pub fn under(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// The first two bytes of an input say how it is cut into reads; the rest.
fn cuts(input: &[u8]) -> (Dice, &[u8]) {
    let (seed, rest) = input.split_at(input.len().min(2));
    let seed = seed
        .iter()
        .fold(1, |seed, byte| seed << 8 | u64::from(*byte));
    (Dice::new(seed), &rest[..rest.len().min(MOST)])
}

/// Runs what waits for nothing but itself.
fn block_on<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    runtime.block_on(what)
}
