//! Lists the backends.

use litz_backend::Factory;

/// Every backend. The first is the one of options that choose none.
pub static BACKENDS: &[&Factory] = &[&litz_cpu::CPU, &litz_cuda::CUDA];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn backends_have_names_of_their_own() {
        let names: BTreeSet<&str> = BACKENDS.iter().map(|backend| backend.name).collect();
        assert_eq!(names.len(), BACKENDS.len());
        assert!(!names.contains("reference"));
    }
}
