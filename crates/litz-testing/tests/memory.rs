//! Checks that random models leave nothing in the process that compiles them a second time: neither expressions nor names.

use litz_testing::{devices, trial};

/// Models of the one seed.
const MODELS: u64 = 60;

// A test beside this one would intern at the same time.
#[test]
fn second_compilations_intern_nothing() {
    let isas = devices::isas();
    for at in 0..MODELS {
        let (model, target) = trial::numbered(7, at, &isas);
        // What is refused goes through some stages, too.
        let first = trial::compile(&model, &target).map_err(|error| error.to_string());
        let interned = litz_sym::interned();
        let second = trial::compile(&model, &target).map_err(|error| error.to_string());
        assert_eq!(first, second, "model {at}");
        assert_eq!(litz_sym::interned(), interned, "model {at}");
    }
}
