//! Any order of good messages, reads and stages of a drain.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_fuzz::checks::drain(input));
