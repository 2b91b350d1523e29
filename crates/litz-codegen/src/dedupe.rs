//! Merges equal kernels, so that a model of twelve equal layers compiles the kernels of a layer once.

use litz_ir::kernel::{Kernel, MemData};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// A kernel as what it does: names of kernels, nests and memories are nothing of that.
struct Meaning<'a>(&'a Kernel);

impl<'a> Meaning<'a> {
    /// All but the facts, which hardly ever tell kernels apart.
    fn parts(&self) -> impl PartialEq + Hash + use<'a> {
        let k = self.0;
        let kind = |MemData { name: _, dtype, sizes, strides, space, swizzle }: &'a MemData| {
            (dtype, sizes, strides, space, swizzle)
        };
        let mems: Vec<_> = k.mems.values().map(kind).collect();
        let vals: Vec<_> = k.vals.values().collect();
        let rings: Vec<_> = k.rings.values().collect();
        let of_grid = (&k.grid, k.grain, (k.persistent, k.registers), k.approximate);
        (&k.sizes, mems, k.params, of_grid, rings, vals, &k.body, &k.checks)
    }
}

impl Hash for Meaning<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for Meaning<'_> {
    fn eq(&self, other: &Meaning<'_>) -> bool {
        self.parts() == other.parts() && self.0.facts == other.0.facts
    }
}

impl Eq for Meaning<'_> {}

/// Distinct kernels in order of first appearance, the name that stands for each of `kernels`, and how many of
/// `kernels` each distinct one serves. Kernels that differ in a check's message alone stay apart.
pub fn dedupe(kernels: Vec<Kernel>) -> (Vec<Kernel>, Vec<String>, Vec<usize>) {
    let mut first: HashMap<Meaning<'_>, usize> = HashMap::new();
    let (mut distinct, mut served): (Vec<usize>, Vec<usize>) = Default::default();
    let mut serving = Vec::with_capacity(kernels.len());
    for (at, kernel) in kernels.iter().enumerate() {
        let place = *first.entry(Meaning(kernel)).or_insert(distinct.len());
        if place == distinct.len() {
            distinct.push(at);
            served.push(0);
        }
        served[place] += 1;
        serving.push(place);
    }
    let names = serving.iter().map(|&place| kernels[distinct[place]].name.clone()).collect();
    let mut left = distinct.iter().peekable();
    let is_first = |(at, kernel)| (left.next_if(|&&first| first == at).is_some()).then_some(kernel);
    (kernels.into_iter().enumerate().filter_map(is_first).collect(), names, served)
}
