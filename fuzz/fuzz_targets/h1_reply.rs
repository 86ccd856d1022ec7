//! Anything that a workload may answer over HTTP/1.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_fuzz::checks::h1_reply(input));
