//! Computes the size of each memory that a schedule declares in a kernel, and where in it an element is.
//!
//! Memory for a buffer keeps what its block touches when it runs once ([`Footprint`]); accumulators have an element for each
//! point whose sum is under way ([`Shape`]). The scheduler chooses by it what registers are to hold, the verifier of schedules holds it
//! against the target, and codegen makes memory of it: all of them ask of a plan in its simplest form ([`simplest`]), so that
//! they have one answer.

mod accumulator;
mod buffer;
mod simplest;
mod strided;

pub use accumulator::Shape;
pub use buffer::Footprint;
pub use simplest::simplest;

use crate::inside::enter;
use litz_ir::kernel::Swizzle;
use litz_ir::loops::{Axis, Buf, Loops, Nest};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, Tree};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashMap;

/// What plans name.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// The program, with the copies that its schedule declares.
    pub loops: &'a Loops,
    /// Its nests, those of recurrences among them.
    pub nests: &'a HashMap<&'a str, &'a Nest>,
    /// Its buffers.
    pub bufs: &'a HashMap<&'a str, Buf>,
}

/// Something around a tree.
#[derive(Clone, Copy, Debug)]
pub enum Around {
    /// A loop.
    Loop(Axis),
    /// What holds there.
    Cond(Rel),
}

/// The loops, conditions and declarations around a tree, besides the grid.
#[derive(Clone, Default)]
pub struct Path<'p> {
    /// Loops and conditions, outermost first.
    around: Vec<Around>,
    /// Memory that is declared there, outermost first.
    pub locals: Vec<&'p Local>,
}

impl Path<'_> {
    /// The loops, outermost first.
    pub fn loops(&self) -> impl Iterator<Item = Axis> {
        self.around.iter().filter_map(|around| match around {
            Around::Loop(axis) => Some(*axis),
            Around::Cond(_) => None,
        })
    }

    /// What holds there.
    fn conds(&self) -> impl Iterator<Item = Rel> {
        self.around.iter().filter_map(|around| match around {
            Around::Cond(cond) => Some(*cond),
            Around::Loop(_) => None,
        })
    }
}

/// A declaration in a plan.
struct Declared<'p> {
    local: &'p Local,
    path: Path<'p>,
    /// What comes behind it in its block.
    rest: &'p [Tree],
}

/// The elements of memory that is declared.
pub enum Elements {
    /// The elements of a buffer that its block stores to.
    Buffer(Footprint),
    /// The elements of one accumulator of a nest, which has one for each of its reductions and scans.
    Accumulators(Shape),
}

impl Elements {
    /// The dimensions of the memory, as its layout has them.
    pub fn sizes(&self, local: &Local) -> Vec<Expr> {
        let sizes = match self {
            Elements::Buffer(footprint) => footprint.counts(),
            Elements::Accumulators(shape) => shape.sizes(),
        };
        match (local.layout, local.space) {
            // Registers have no lines.
            (Layout::Padded(_), LocalSpace::Register) | (Layout::Dense | Layout::Swizzled { .. }, _) => sizes,
            (Layout::Padded(line), _) => padded(sizes, i64::from(line.max(1))),
            (Layout::Panels { columns, .. }, _) => {
                in_panels(sizes, |row| [row.ceildiv(i64::from(columns)), Expr::int(columns.into())])
            }
        }
    }

    /// How many there are, without what a layout adds.
    pub fn extent(&self) -> Expr {
        match self {
            Elements::Buffer(footprint) => footprint.counts().into_iter().product(),
            Elements::Accumulators(shape) => shape.sizes().into_iter().product(),
        }
    }

    /// The swizzle of its rows that its layout asks for, if it asks for one, for elements of `bytes` bytes.
    ///
    /// # Errors
    /// Where its rows cannot be swizzled so, or are not whole rows of panels.
    pub fn swizzle(&self, layout: Layout, bytes: usize) -> Result<Option<Swizzle>, String> {
        let (unit, pairs, columns) = match layout {
            Layout::Dense | Layout::Padded(_) => return Ok(None),
            Layout::Swizzled { unit, pairs } => (unit, pairs, None),
            Layout::Panels { unit, columns } => (unit, false, Some(columns)),
        };
        let all = match self {
            // Dimensions of one element are no rows.
            Elements::Buffer(footprint) => match columns {
                Some(_) => footprint.counts().last().copied(),
                None => footprint.counts().into_iter().rfind(|count| !count.is_one()),
            },
            Elements::Accumulators(_) => None,
        };
        let swizzle = || {
            let all = u32::try_from(all?.as_int()?).ok()?;
            let row = columns.unwrap_or(all);
            let unit = unit / u32::try_from(bytes).ok()?.max(1);
            let swizzle = Swizzle { unit, row, pairs };
            (row > 0 && all.is_multiple_of(row) && swizzle.units(bytes).is_some()).then_some(swizzle)
        };
        let panels = columns.map_or(String::new(), |columns| format!(" in panels of {columns}"));
        let row = all.unwrap_or(Expr::one());
        let why =
            || format!("units of {unit} bytes cannot change places in its rows{panels}, of {row} elements");
        swizzle().map(Some).ok_or_else(why)
    }
}

/// Dimensions with panels of the last of them for the outermost, or so the coordinates of an element: `divide` gives the number of a panel,
/// or of all, and that of its columns.
fn in_panels(mut dims: Vec<Expr>, divide: impl Fn(Expr) -> [Expr; 2]) -> Vec<Expr> {
    if let Some(last) = dims.pop() {
        let [panel, column] = divide(last);
        dims.insert(0, panel);
        dims.push(column);
    }
    dims
}

/// The coordinates of an element in memory, as its layout has them, of those in a dense one. See [`Elements::sizes`].
pub fn place_in(layout: Layout, place: Vec<Expr>, facts: &Facts) -> Vec<Expr> {
    match layout {
        Layout::Dense | Layout::Padded(_) | Layout::Swizzled { .. } => place,
        Layout::Panels { columns, .. } => in_panels(place, |at| {
            let columns = i64::from(columns);
            [at.floordiv(columns), at.modulo(columns)].map(|at| facts.simplify(at))
        }),
    }
}

/// Extents of an array whose rows take an odd number of lines, if they are no shorter than one.
fn padded(mut counts: Vec<Expr>, line: i64) -> Vec<Expr> {
    if let [_, .., row] = counts.as_mut_slice()
        && row.as_int().is_none_or(|n| n >= line)
    {
        *row = (row.ceildiv(line).floordiv(2) * 2 + 1) * line;
    }
    counts
}

/// The declarations and leaves of a plan, with what is around them.
pub struct Footprints<'p> {
    program: Program<'p>,
    plan: &'p KernelPlan,
    declared: Vec<Declared<'p>>,
    leaves: Vec<(&'p Leaf, Path<'p>)>,
    /// The variables of all loops, those of the grid among them.
    vars: Vec<Sym>,
    /// Facts about sizes and the variables of the grid.
    facts: Facts,
}

impl<'p> Footprints<'p> {
    /// Prepares to compute the footprints of a plan, which is in its simplest form.
    pub fn new(program: Program<'p>, plan: &'p KernelPlan) -> Footprints<'p> {
        let mut facts = program.loops.facts.clone();
        plan.grid.iter().for_each(|axis| enter(&mut facts, *axis));
        let vars = plan.grid.iter().map(|axis| axis.var).collect();
        let (declared, leaves) = (Vec::new(), Vec::new());
        let mut footprints = Footprints { program, plan, declared, leaves, vars, facts };
        footprints.gather(&plan.body, &mut Path::default());
        footprints
    }

    fn gather(&mut self, trees: &'p [Tree], path: &mut Path<'p>) {
        let before = path.locals.len();
        for (at, tree) in trees.iter().enumerate() {
            match tree {
                Tree::Loop { axis, body, .. } => {
                    self.vars.push(axis.var);
                    path.around.push(Around::Loop(*axis));
                    self.gather(body, path);
                    path.around.pop();
                }
                Tree::If { cond, then, other } => {
                    for (cond, body) in [(*cond, then), (cond.negate(), other)] {
                        path.around.push(Around::Cond(cond));
                        self.gather(body, path);
                        path.around.pop();
                    }
                }
                Tree::Local(local) => {
                    self.declared.push(Declared { local, path: path.clone(), rest: &trees[at + 1..] });
                    path.locals.push(local);
                }
                Tree::Leaf(leaf) => self.leaves.push((leaf, path.clone())),
            }
        }
        path.locals.truncate(before);
    }

    /// The leaves of the plan, in the order of its text.
    pub fn leaves(&self) -> &[(&'p Leaf, Path<'p>)] {
        &self.leaves
    }

    /// What the plan declares, in the order of its text, which is that of [`KernelPlan::locals`].
    pub fn locals(&self) -> impl Iterator<Item = &'p Local> {
        self.declared.iter().map(|declared| declared.local)
    }

    /// The elements of the declaration of that number. None where nothing stores to it, or never runs.
    ///
    /// # Errors
    /// Where the declaration, or a leaf, names what the program does not have, or nothing initializes accumulators.
    pub fn elements(&self, number: usize) -> Result<Option<Elements>, String> {
        let declared = &self.declared[number];
        match &declared.local.holds {
            Holds::Buffer(name) | Holds::Copy { name, .. } | Holds::Result { name, .. } => {
                let buf = self.program.bufs.get(&**name).copied();
                let buf = buf.ok_or_else(|| format!("no buffer {name}"))?;
                Ok(self.footprint(buf, declared)?.map(Elements::Buffer))
            }
            Holds::Accumulator(nest) => Ok(self.shape(nest, declared)?.map(Elements::Accumulators)),
        }
    }

    /// Whether the elements of the declaration of that number are those of a copy whose leaf stores to each of them once, past the ends of
    /// what is copied as well: if it stores zeros there, nobody who reads the copy has to ask where these are.
    pub fn is_filled(&self, number: usize, elements: &Elements) -> bool {
        match elements {
            Elements::Buffer(footprint) => self.is_filled_copy(&self.declared[number], footprint),
            Elements::Accumulators(_) => false,
        }
    }

    fn nest(&self, name: &str) -> Result<&'p Nest, String> {
        self.program.nests.get(name).copied().ok_or_else(|| format!("no nest {name}"))
    }
}

/// The value a leaf binds `axis` to.
fn bound(leaf: &Leaf, axis: Sym) -> Option<Expr> {
    leaf.bind.iter().find(|(own, _)| *own == axis).map(|bind| bind.1)
}
