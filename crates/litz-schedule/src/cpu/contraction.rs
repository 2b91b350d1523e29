//! Kernels of a contraction, which is a matrix product or a convolution, and what follows at the points of its tiles.

use crate::context::Cx;
use crate::cpu::loops::Loops;
use crate::cpu::product::{self, Problem};
use crate::cpu::{cpu, pays, rows};
use crate::draft::{Draft, Family, Planned, Recipe, Relation, Traits};
use crate::group::Group;
use crate::join;
use crate::no_fuse::NoFuse;
use litz_analysis::contraction::Columns;

/// A contraction, the first member.
#[derive(Debug)]
pub struct Product {
    columns: Columns,
    /// The statement that packs the right operand, panel by panel.
    packed: Option<usize>,
}

impl Product {
    /// A product whose operands lie in memory as they are.
    pub fn new(columns: Columns) -> Product {
        Product { columns, packed: None }
    }

    /// The draft with statement `s` as a phase behind the product, for blocks of rows.
    fn in_rows(&self, cx: &Cx<'_>, draft: &Draft, s: usize) -> Result<Draft, NoFuse> {
        let first = rows::first_phase(&draft.group, &self.columns).filter(|_| self.packed.is_none());
        rows::join(cx, draft, first.ok_or_else(|| rows::refusal(cx, s))?, s)
    }
}

impl Family for Product {
    fn traits(&self) -> Traits {
        Traits { passes_on: true, shares_launch: true, overwrites: true }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        match relation {
            Relation::Beside | Relation::Aligned => Err(rows::refusal(cx, s)),
            // Tiles read what members read at points of other tiles, too.
            Relation::Behind if join::overwrites(cx, &draft.group, s) => Err(NoFuse::OtherPoints),
            Relation::Behind if cx.contractions[s].is_some() => self.in_rows(cx, draft, s),
            Relation::Behind => match pays::join_points(cx, &draft.group, s, true) {
                Err(NoFuse::NotAnEpilogue) => self.in_rows(cx, draft, s),
                joined => joined.map(|joined| draft.with(joined)),
            },
        }
    }

    fn wants_packing(&self) -> bool {
        true
    }

    fn packing(&self) -> Vec<usize> {
        self.packed.into_iter().collect()
    }

    fn recipe(&self) -> Option<Recipe<'_>> {
        Some(Recipe { columns: Some(&self.columns), phases: &[] })
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let columns = (&self.columns, self.packed);
        Some(product::plan(&Problem::new(cx.loops, group, columns, cpu(cx), cx.heuristics)))
    }
}

/// See [`crate::draft::Machine::pack`].
pub fn pack(cx: &Cx<'_>, packing: &Draft, product: &Draft) -> Option<Draft> {
    let deps = cx.deps;
    let Product { columns, packed: None } = product.family::<Product>()? else { return None };
    let (head, [pack]) = (product.group.members.first()?, &packing.stmts()[..]) else { return None };
    let [buf] = deps.stmts[*pack].writes[..] else { return None };
    let is_at_call = !packing.at_load && !product.at_load;
    let is_own = !deps.escapes[buf] && deps.users[buf].iter().all(|user| [*pack, head.stmt].contains(user));
    if packing.family::<Loops>().is_none() || !is_at_call || !is_own {
        return None;
    }
    let packed = Some(*pack);
    let problem = Problem::new(cx.loops, &product.group, (columns, packed), cpu(cx), cx.heuristics);
    product::is_packing_worth_it(&problem, buf).then(|| {
        let family = Product { columns: columns.clone(), packed };
        Draft::new(product.group.clone(), product.at_load, family)
    })
}
