//! Replays what the fuzz targets start from and what they once found, as ordinary tests.

use litz_testing::fuzz::{FuzzTarget, findings, seeds};

/// Tries all inputs of a target. The first that fails is named.
fn replay(target: FuzzTarget) {
    let inputs: Vec<_> = seeds(target).into_iter().chain(findings(target)).collect();
    assert!(!inputs.is_empty(), "{} has nothing to start from", target.name());
    for (name, bytes) in inputs {
        let attempt = std::panic::catch_unwind(|| target.attempt(&bytes));
        assert!(attempt.is_ok(), "{}: {name}", target.name());
    }
}

macro_rules! targets {
    ($($name:ident => $target:ident,)*) => {
        $(#[test] fn $name() { replay(FuzzTarget::$target); })*
        #[test]
        fn every_target_is_replayed() {
            assert_eq!([$(FuzzTarget::$target),*], FuzzTarget::ALL);
        }
    };
}

targets! {
    archive => Archive,
    program => Program,
    text => Text,
    run => Run,
    models => Models,
    simplify => Simplify,
    saved => Saved,
    c_library => CLibrary,
}
