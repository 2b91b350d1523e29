//! Equal kernels become one: a twelve-layer model compiles its layer once.

use litz_ir::kernel::Kernel;
use std::collections::HashMap;

/// The kernel with every name that does not change what it does replaced by its position.
pub fn canonical(kernel: &Kernel) -> Kernel {
    let mut k = kernel.clone();
    k.name = "k".to_owned();
    k.from.clear();
    for (i, m) in k.mems.values_mut().enumerate() {
        m.name = format!("m{i}");
    }
    for (i, c) in k.checks.iter_mut().enumerate() {
        *c = format!("check {i}");
    }
    k
}

/// Distinct kernels in order of first appearance, the name that stands for each of `kernels`, and how many of
/// `kernels` each distinct one serves. Kernels that differ in a check's message alone stay apart.
pub fn dedupe(kernels: Vec<Kernel>) -> (Vec<Kernel>, Vec<String>, Vec<usize>) {
    let mut first: HashMap<(String, Vec<String>), usize> = HashMap::new();
    let (mut distinct, mut names, mut served): (Vec<Kernel>, Vec<String>, Vec<usize>) = Default::default();
    for kernel in kernels {
        let key = (canonical(&kernel).to_string(), kernel.checks.clone());
        let at = *first.entry(key).or_insert(distinct.len());
        if at == distinct.len() {
            distinct.push(kernel);
            served.push(0);
        }
        served[at] += 1;
        names.push(distinct[at].name.clone());
    }
    (distinct, names, served)
}
