//! A kernel plan and the nests it names, to a kernel.
//!
//! The tree of the plan is walked once. Tile loops are held back and wrapped around the leaves below them, so
//! that everything between a tile and its leaves runs for all points of the tile together. Loops that may run
//! past the end of an axis are clipped; written-out loops split into a full and a last version.

mod accumulator;
mod leaf;
mod local;
mod tree;

use crate::passes::{self, REALIZATION};
use crate::{Names, misfit};
use accumulator::Accumulator;
use litz_ir::kernel::{Kernel, LoopKind, Mem, MemData, Space, Val, visit};
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest};
use litz_ir::schedule::{self, Block, KernelPlan, Leaf, Local, LocalSpace, Tree};
use litz_ir::target::Target;
use litz_ir::{Diag, Dtype};
use litz_sym::{Expr, Facts, Rel, Sym};
use local::LocalMem;
use std::collections::{HashMap, HashSet};

/// A kernel and the buffers its parameters stand for.
pub struct Built {
    /// The kernel.
    pub kernel: Kernel,
    /// One buffer for each parameter.
    pub params: Vec<Buf>,
}

/// Register arrays larger than this many elements live in scratch memory instead: 32 vectors of 16 lanes, with room
/// for element types narrower than 32 bits.
const MAX_REGISTER_ELEMENTS: i64 = 1024;

/// Builds the kernel of `plan`.
pub fn build(loops: &Loops, names: &Names<'_>, plan: &KernelPlan, target: &Target) -> Result<Built, Diag> {
    let plan = &simplified(plan, &loops.facts);
    let mut b = Builder {
        loops,
        plan,
        names,
        kernel: Kernel { grid: plan.grid.clone(), grain: plan.grain, ..Kernel::new(&plan.name) },
        params: Vec::new(),
        mem_of: HashMap::new(),
        locals: HashMap::new(),
        accumulators: HashMap::new(),
    };
    let mut leaves = Vec::new();
    plan.body.iter().for_each(|t| t.each_leaf(&mut |l| leaves.push(l)));
    leaves.retain(|leaf| leaf.part.runs_instructions());
    b.kernel.from = plan.nests().into_iter().map(str::to_owned).collect();
    let mut env = Env::new(loops.facts.clone());
    plan.grid.iter().for_each(|axis| {
        env.enter(Around { axis: *axis, planned: *axis, is_tile: false, body: &plan.body }, axis.extent)
    });
    b.declare_params(&leaves)?;
    b.declare_locals(&env.facts)?;
    let mut body = Vec::new();
    // What is known of the variables of a grid without points contradicts itself.
    if !plan.grid.iter().any(|axis| axis.extent.is_zero()) {
        b.block(&plan.body, &env, &mut body)?;
    }
    b.kernel.body = body;
    b.kernel.facts = loops.facts.clone();
    passes::run(&mut b.kernel, REALIZATION, target)?;
    b.finish_facts();
    Ok(Built { kernel: b.kernel, params: b.params })
}

/// The plan with the extents of its loops in their simplest form, since what is asked of them is whether they are 1, or a
/// number; and with 0 for the variables of loops of one point, but where values run along them. The parts of a nest may have
/// other such loops, so that nothing that they share, such as an accumulator, can be told by their variables.
fn simplified(plan: &KernelPlan, facts: &Facts) -> KernelPlan {
    let mut plan = plan.clone();
    plan.grid.iter_mut().for_each(|axis| simplify_extent(axis, facts));
    plan.body.iter_mut().for_each(|tree| simplify_extents(tree, facts));
    plan.body = without_ones(plan.body, None, &mut plan.locals);
    plan
}

/// Trees without the variables of loops of one point. Tiles of one point that nothing runs along hold nothing together: they
/// go, and what is local to one is local to the loop around it, `scope`.
fn without_ones(trees: Vec<Tree>, scope: Option<Sym>, locals: &mut [Local]) -> Vec<Tree> {
    let mut kept = Vec::new();
    for tree in trees {
        let Tree::Loop { kind, axis, mut body } = tree else {
            kept.push(tree);
            continue;
        };
        let is_one = axis.extent.is_one();
        if is_one {
            body.iter_mut().for_each(|tree| put_zero(tree, axis.var));
        }
        let mut is_used = false;
        body.iter().for_each(|tree| {
            tree.each_leaf(&mut |leaf| is_used |= leaf.bind.iter().any(|bind| bind.1.has_sym(axis.var)));
        });
        if is_one && kind.is_tile() && !is_used {
            let own = locals.iter_mut().filter(|local| local.scope == Some(axis.var));
            own.for_each(|local| local.scope = scope);
            kept.extend(without_ones(body, scope, locals));
        } else {
            let body = without_ones(body, Some(axis.var), locals);
            kept.push(Tree::Loop { kind, axis, body });
        }
    }
    kept
}

/// Puts 0 for a variable in a tree.
fn put_zero(tree: &mut Tree, var: Sym) {
    let zero = |e: &mut Expr| *e = e.replace(var, Expr::zero());
    match tree {
        Tree::Leaf(leaf) => {
            leaf.bind.iter_mut().for_each(|bind| zero(&mut bind.1));
            leaf.block.iter_mut().for_each(|Block { number, width }| {
                zero(number);
                zero(width);
            });
        }
        Tree::Loop { axis, body, .. } => {
            zero(&mut axis.extent);
            body.iter_mut().for_each(|tree| put_zero(tree, var));
        }
    }
}

fn simplify_extents(tree: &mut Tree, facts: &Facts) {
    match tree {
        Tree::Leaf(_) => {}
        Tree::Loop { axis, body, .. } => {
            simplify_extent(axis, facts);
            body.iter_mut().for_each(|tree| simplify_extents(tree, facts));
        }
    }
}

fn simplify_extent(axis: &mut Axis, facts: &Facts) {
    if axis.extent.as_int().is_some() {
        return;
    }
    axis.extent = facts.simplify(axis.extent);
    let is_known = |rel: Rel| facts.known(&rel).is_yes();
    if axis.extent.as_int().is_none()
        && is_known(Rel::le(axis.extent, 1))
        && is_known(Rel::le(1, axis.extent))
    {
        axis.extent = Expr::one();
    }
}

struct Builder<'a> {
    loops: &'a Loops,
    plan: &'a KernelPlan,
    names: &'a Names<'a>,
    kernel: Kernel,
    params: Vec<Buf>,
    mem_of: HashMap<Buf, Mem>,
    locals: HashMap<Buf, LocalMem>,
    /// Accumulators of the reductions and scans of that nest, in the order of its body, in its scope of that depth.
    accumulators: HashMap<(&'a str, usize), Vec<Accumulator>>,
}

/// Where in the tree we are.
#[derive(Clone)]
struct Env<'a> {
    /// Loops around, outermost first, tiles included.
    path: Vec<Around<'a>>,
    /// Tiles held back, outermost first.
    tiles: Vec<TileLoop>,
    /// (nest, axis) pairs that an enclosing loop's clipped extent keeps in range.
    clipped: HashSet<(&'a str, Sym)>,
    facts: Facts,
}

#[derive(Clone, Copy)]
struct Around<'a> {
    /// As it runs here.
    axis: Axis,
    /// As it is in the plan: a loop that is written out twice has fewer points the second time.
    planned: Axis,
    /// The plan has it as a tile, whether it is held back or its points run one by one.
    is_tile: bool,
    body: &'a [Tree],
}

#[derive(Clone, Copy)]
struct TileLoop {
    kind: LoopKind,
    axis: Axis,
    /// Points that run: fewer than the axis has where a matrix instruction's end is clipped.
    extent: Expr,
}

impl<'a> Env<'a> {
    fn new(facts: Facts) -> Env<'a> {
        Env { path: Vec::new(), tiles: Vec::new(), clipped: HashSet::new(), facts }
    }

    /// Steps into a loop that runs `extent` times.
    fn enter(&mut self, around: Around<'a>, extent: Expr) {
        self.facts.declare_index(around.axis.var, extent);
        self.path.push(around);
    }

    fn has_clipped(&self, nest: &'a Nest, axis: Sym) -> bool {
        self.clipped.contains(&(nest.name.as_str(), axis))
    }
}

impl TileLoop {
    /// The axis, as long as its last vector.
    fn in_whole_vectors(&self) -> Axis {
        let extent = match self.kind {
            LoopKind::Vector { lanes, .. } => self.axis.extent.ceildiv(i64::from(lanes)) * i64::from(lanes),
            LoopKind::For | LoopKind::Unroll | LoopKind::Mma => self.axis.extent,
        };
        Axis { extent, ..self.axis }
    }
}

impl<'a> Builder<'a> {
    fn error(&self, message: impl std::fmt::Display) -> Diag {
        misfit(&self.plan.name, message)
    }

    fn nest(&self, leaf: &Leaf) -> Result<&'a Nest, Diag> {
        let nest = self.names.nests.get(leaf.nest.as_str());
        nest.copied().ok_or_else(|| self.error(format!("no nest {}", leaf.nest)))
    }

    /// Parameters in order of first mention. Writing wins over reading. A buffer that is written over another one here
    /// has its parameter.
    fn declare_params(&mut self, leaves: &[&Leaf]) -> Result<(), Diag> {
        let local: HashSet<&str> = self.plan.locals.iter().filter_map(Local::buffer).collect();
        let mut uses = Vec::new();
        for leaf in leaves {
            for inst in &self.nest(leaf)?.body {
                let Some((buf, index)) = inst.op.element() else { continue };
                let data = &self.loops.bufs[buf];
                if index.len() != data.sizes.len() {
                    return Err(self.error(format!("{}: {} coordinates", data.name, index.len())));
                }
                let is_store = matches!(inst.op, InstOp::Store { .. });
                uses.push((buf, if is_store { Space::Write } else { Space::Read }));
            }
        }
        uses.retain(|(buf, _)| !local.contains(&*self.loops.bufs[*buf].name));
        let used: HashSet<Buf> = uses.iter().map(|used| used.0).collect();
        for (buf, space) in uses {
            let over = self.names.over.get(&buf).filter(|over| used.contains(over));
            let (param, space) = over.map_or((buf, space), |&over| (over, Space::Update));
            let data = &self.loops.bufs[param];
            let mem = match self.mem_of.get(&param) {
                Some(&mem) => mem,
                None => {
                    let (sizes, strides) = (data.sizes.clone(), data.strides.clone());
                    self.params.push(param);
                    let (name, dtype) = (data.name.clone(), data.dtype);
                    self.kernel.mems.push(MemData { name, dtype, sizes, strides, space })
                }
            };
            self.mem_of.extend([(param, mem), (buf, mem)]);
            // Coordinates of a buffer with other dimensions mean nothing there.
            let shape = |buf: Buf| (&self.loops.bufs[buf].sizes, &self.loops.bufs[buf].strides);
            if shape(buf) != shape(param) {
                let (name, space) = (data.name.clone(), self.kernel.mems[mem].space);
                self.kernel.mems[mem] = MemData::flat(name, data.dtype, data.span(), space);
            }
            if space != Space::Read {
                self.kernel.mems[mem].space = space;
            }
        }
        self.kernel.params = self.params.len();
        Ok(())
    }

    /// Where memory of `extent` elements for `name` is that a plan wants in `space`: registers hold a few that are known.
    fn space_of(&self, space: LocalSpace, name: &str, extent: Expr) -> Result<Space, Diag> {
        match space {
            LocalSpace::Register if extent.as_int().is_some_and(|n| n <= MAX_REGISTER_ELEMENTS) => {
                Ok(Space::Register)
            }
            LocalSpace::Register | LocalSpace::Scratch => Ok(Space::Scratch),
            LocalSpace::Shared => Err(self.error(format!("{name}: this target has no shared memory"))),
        }
    }

    /// Memory of this kernel alone, under a name that nothing else has.
    fn local(&mut self, name: &str, dtype: Dtype, sizes: Vec<Expr>, space: Space) -> Mem {
        let taken = |n: &str| self.kernel.mems.values().any(|m| m.name == n);
        let mut unique = name.to_owned();
        let mut n = 1;
        while taken(&unique) {
            unique = format!("{name}_{n}");
            n += 1;
        }
        self.kernel.mems.push(MemData::dense(unique, dtype, sizes, space))
    }

    fn value(&mut self, ty: Dtype) -> Val {
        self.kernel.vals.push(ty)
    }

    /// Keeps the ranges of the size symbols the kernel mentions, in name order.
    fn finish_facts(&mut self) {
        let mut sizes = Vec::new();
        each_expr(&self.kernel, &mut |e| {
            e.visit_syms(&mut |s| {
                if self.loops.facts.is_symbol_declared(s) {
                    sizes.push(s);
                }
            });
        });
        sizes.sort_unstable();
        sizes.dedup();
        self.kernel.facts = Facts::new();
        for &s in &sizes {
            self.kernel.facts.declare(s, self.loops.facts.range_of(s), self.loops.facts.hint(Expr::sym(s)));
        }
        self.kernel.sizes = sizes;
    }
}

/// The value a leaf binds `axis` to.
fn bound(leaf: &Leaf, axis: Sym) -> Option<Expr> {
    leaf.bind.iter().find(|(s, _)| *s == axis).map(|b| b.1)
}

/// Leaves below, each with the loops between, outermost first.
fn collect_leaves(trees: &[Tree]) -> Vec<(&Leaf, Vec<Axis>)> {
    let axes = |loops: Vec<(schedule::LoopKind, Axis)>| loops.into_iter().map(|(_, axis)| axis).collect();
    leaves_in_loops(trees).into_iter().map(|(leaf, loops)| (leaf, axes(loops))).collect()
}

/// As [`collect_leaves`], with the kinds of the loops.
fn leaves_in_loops(trees: &[Tree]) -> Vec<(&Leaf, Vec<(schedule::LoopKind, Axis)>)> {
    type Path = Vec<(schedule::LoopKind, Axis)>;
    fn walk<'a>(trees: &'a [Tree], path: &mut Path, out: &mut Vec<(&'a Leaf, Path)>) {
        for tree in trees {
            match tree {
                Tree::Leaf(leaf) => out.push((leaf, path.clone())),
                Tree::Loop { kind, axis, body } => {
                    path.push((*kind, *axis));
                    walk(body, path, out);
                    path.pop();
                }
            }
        }
    }
    let mut leaves = Vec::new();
    walk(trees, &mut Vec::new(), &mut leaves);
    leaves
}

/// Calls `f` on every expression a kernel mentions.
fn each_expr(kernel: &Kernel, f: &mut dyn FnMut(Expr)) {
    kernel.grid.iter().for_each(|Axis { extent, .. }| f(*extent));
    kernel.mems.values().for_each(|mem| mem.sizes.iter().chain(&mem.strides).for_each(|e| f(*e)));
    visit(&kernel.body, &mut |stmt| stmt.exprs().into_iter().for_each(&mut *f));
}
