//! Builds the kernels of equal layers once: plans that differ in names alone, of nests that are alike, make kernels that differ in
//! names alone.

use std::collections::HashMap;

use litz_analysis::alike::{Meaning, Numbers};
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::loops::{Axis, Buf, Loops, Nest};
use litz_ir::schedule::KernelPlan;
use litz_ir::target::Target;

use crate::Names;
use crate::kernel::{Built, build};

/// All that a kernel is built of, with numbers for names.
#[derive(PartialEq)]
struct Recipe {
    plan: KernelPlan,
    meaning: Meaning,
    /// Buffers that have the memory of another, each by its place in the list of all.
    over: Vec<(usize, usize)>,
}

/// A kernel that is built, with what the numbers of its recipe stand for.
struct Known {
    recipe: Recipe,
    numbers: Numbers,
    built: Built,
}

/// The kernels that are built, by what is quickly compared.
#[derive(Default)]
pub struct Kernels(HashMap<(Vec<Axis>, usize), Vec<Known>>);

impl Kernels {
    /// Builds the kernel of a plan, or takes one that is like it.
    ///
    /// # Errors
    /// When the plan does not fit the nests.
    pub fn build(
        &mut self,
        loops: &Loops,
        names: &Names<'_>,
        plan: &KernelPlan,
        target: &Target,
    ) -> Result<Built, Diag> {
        let Some((recipe, numbers)) = recipe(loops, names, plan) else {
            return build(loops, names, plan, target);
        };
        let known = self.0.entry((plan.grid.clone(), recipe.meaning.size())).or_default();
        if let Some(like) = known.iter().find(|known| known.recipe == recipe) {
            return Ok(like.renamed(plan, &numbers));
        }
        let built = build(loops, names, plan, target)?;
        known.push(Known { recipe, numbers, built: built.clone() });
        Ok(built)
    }
}

impl Known {
    /// The kernel of a plan with the same recipe. Its memories keep their names, which say nothing: [`crate::dedupe`] leaves the first
    /// of such kernels alone.
    fn renamed(&self, plan: &KernelPlan, numbers: &Numbers) -> Built {
        let own = |&buf: &Buf| self.numbers.buf_in(buf, numbers).expect("invariant: nests access parameters");
        Built {
            params: self.built.params.iter().map(own).collect(),
            kernel: Kernel {
                name: plan.name.clone(),
                from: plan.nests().into_iter().map(str::to_owned).collect(),
                ..self.built.kernel.clone()
            },
        }
    }
}

/// The recipe of a plan. None where it names what its nests do not touch.
fn recipe(loops: &Loops, names: &Names<'_>, plan: &KernelPlan) -> Option<(Recipe, Numbers)> {
    let nests = plan.nests().into_iter().map(|name| names.nests.get(name).copied());
    let nests: Vec<&Nest> = nests.collect::<Option<_>>()?;
    let (meaning, numbers) = Meaning::of(loops, nests);
    let place = |buf: &Buf| numbers.bufs.iter().position(|own| own == buf);
    let mut plan = plan.clone();
    plan.name.clear();
    let (mut nests_are_known, mut bufs_are_known) = (true, true);
    let put = |name: &mut String, number: Option<usize>| {
        *name = number.unwrap_or_default().to_string();
        number.is_some()
    };
    plan.each_name_mut(
        &mut |name| {
            let number = numbers.nests.iter().position(|own| own == name);
            nests_are_known &= put(name, number);
        },
        &mut |name| {
            let number = names.bufs.get(name.as_str()).and_then(place);
            bufs_are_known &= put(name, number);
        },
    );
    let over = numbers.bufs.iter().enumerate();
    let over = over.filter_map(|(at, buf)| Some((at, place(names.over.get(buf)?)?))).collect();
    (nests_are_known && bufs_are_known).then_some((Recipe { plan, meaning, over }, numbers))
}
