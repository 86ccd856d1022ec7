//! The checks that all targets choose from.

#[path = "../tests/gate_fuzz/checks/mod.rs"]
pub mod checks;
