//! Anything that a client or a workload may send over HTTP/2.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_fuzz::checks::h2(input));
