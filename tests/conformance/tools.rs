//! Where the programs of the suites lie.

use std::path::{Path, PathBuf};

/// One of the programs that `tests/conformance/build.sh` makes: from `$TIDEGATE_TEST_CONFORMANCE`, else
/// from where `./test` puts them.
pub(crate) fn tool(name: &str) -> PathBuf {
    let installed = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        target
            .expect("the parent of target/tmp")
            .join("tools/conformance")
    };
    let folder =
        std::env::var_os("TIDEGATE_TEST_CONFORMANCE").map_or_else(installed, PathBuf::from);
    let path = folder.join(name);
    assert!(
        path.exists(),
        "no {}: run ./test conformance, which makes it, or set TIDEGATE_TEST_CONFORMANCE",
        path.display()
    );
    path
}
