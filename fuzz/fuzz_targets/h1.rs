//! Anything that a client may send over HTTP/1.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_fuzz::checks::h1(input));
