//! Applies a kernel plan to the nests that it names: makes a kernel.
//!
//! The tree of the plan is walked once, and its loops, conditions and leaves become those of the kernel one by one. A leaf is
//! guarded where its point may be past the end of an axis of its nest.

mod accumulator;
mod leaf;
mod local;
mod merge;
mod tree;
mod windows;

use crate::passes;
use crate::{Names, misfit};
use accumulator::Accumulator;
use litz_analysis::copies::read_of;
use litz_analysis::footprint::{Footprints, Path, Program, Shape, simplest};
use litz_analysis::inside::enter;
use litz_analysis::parts::parts_of;
use litz_ir::kernel::{Kernel, KernelLoopKind, Mem, MemData, MemorySpace, Val, visit};
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, Local, LocalSpace};
use litz_ir::target::Target;
use litz_ir::{Diag, Dtype};
use litz_sym::{Expr, Facts, Sym};
use local::LocalMem;
use merge::Meeting;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A kernel and the buffers its parameters stand for.
#[derive(Clone)]
pub struct Built {
    /// The kernel.
    pub kernel: Kernel,
    /// One buffer for each parameter.
    pub params: Vec<Buf>,
}

/// Builds the kernel of `plan`.
pub fn build(loops: &Loops, names: &Names<'_>, plan: &KernelPlan, target: &Target) -> Result<Built, Diag> {
    let plan = &simplest(plan, &loops.facts);
    let program = Program { loops, nests: &names.nests, bufs: &names.bufs };
    let footprints = Footprints::new(program, plan);
    let mut b = Builder {
        loops,
        plan,
        names,
        kernel: Kernel {
            grid: plan.grid.clone(),
            grain: plan.grain,
            persistent: plan.persistent,
            registers: plan.registers,
            rings: litz_ir::ids::Table::new(),
            ..Kernel::new(&plan.name)
        },
        params: Vec::new(),
        mem_of: HashMap::new(),
        locals: HashMap::new(),
        shapes: HashMap::new(),
        meetings: Vec::new(),
        owners: HashMap::new(),
    };
    b.kernel.from = plan.nests().into_iter().map(str::to_owned).collect();
    let mut env = Env::new(loops.facts.clone());
    plan.grid.iter().for_each(|axis| env.enter(*axis));
    b.declare_params(footprints.leaves())?;
    b.declare_locals(&footprints)?;
    let mut body = Vec::new();
    // What is known of the variables of a grid without points contradicts itself.
    if !plan.grid.iter().any(|axis| axis.extent.is_zero()) {
        b.block(&plan.body, &env, &mut body)?;
    }
    b.kernel.body = body;
    b.kernel.facts = loops.facts.clone();
    passes::run(&mut b.kernel, passes::realization(target), target)?;
    declare_sizes(&mut b.kernel, &loops.facts);
    Ok(Built { kernel: b.kernel, params: b.params })
}

/// A local buffer where it is declared; without memory where nothing stores to it.
type Held<'a> = litz_analysis::copies::Held<'a, Option<Rc<LocalMem>>>;

struct Builder<'a> {
    loops: &'a Loops,
    plan: &'a KernelPlan,
    names: &'a Names<'a>,
    kernel: Kernel,
    params: Vec<Buf>,
    mem_of: HashMap<Buf, Mem>,
    /// Local buffers by their declaration, which its address in the plan identifies.
    locals: HashMap<*const Local, Rc<LocalMem>>,
    /// Shapes of accumulators by their declaration.
    shapes: HashMap<*const Local, Shape>,
    /// What stands around loops over levels that are being lowered, to combine what their iterations have.
    meetings: Vec<Meeting>,
    /// Of private accumulators, how many loops over levels are between the declaration and their init: whose threads have them.
    owners: HashMap<Mem, usize>,
}

/// What is around a tree while it is lowered.
#[derive(Clone)]
struct Env<'a> {
    /// The loops and branches around, outermost first.
    path: Vec<Around>,
    /// The accumulators that are declared around, outermost first: those of the reductions and scans of a nest, in the order of
    /// its body.
    accumulators: Vec<(&'a str, Rc<[Accumulator]>)>,
    /// The local buffers that are declared around, outermost first.
    locals: Vec<Held<'a>>,
    /// Facts about the variables of the loops.
    facts: Facts,
}

impl Env<'_> {
    fn new(facts: Facts) -> Self {
        Env { path: Vec::new(), accumulators: Vec::new(), locals: Vec::new(), facts }
    }

    /// Steps into a loop.
    fn enter(&mut self, axis: Axis) {
        enter(&mut self.facts, axis);
    }

    /// What counts the elements of a vector, where that is the innermost loop around.
    fn of_vector(&self) -> Option<Axis> {
        match self.path.last() {
            Some(Around::Loop(KernelLoopKind::Vector { .. }, axis)) => Some(*axis),
            Some(Around::Loop(..) | Around::Branch) | None => None,
        }
    }

    /// The loops around over levels of the machine, whose iterations run at the same time. Iterations of a chain combine into the same
    /// elements one after another, between `await turn` and `pass turn`.
    fn levels(&self) -> impl Iterator<Item = Axis> {
        self.path.iter().filter_map(|around| match around {
            Around::Loop(KernelLoopKind::Level(_), axis) => Some(*axis),
            Around::Loop(..) | Around::Branch => None,
        })
    }
}

/// What is around a statement.
#[derive(Clone, Copy)]
enum Around {
    /// A loop.
    Loop(KernelLoopKind, Axis),
    /// A body of an `if`.
    Branch,
}

impl Around {
    /// Whether iterations are run at once, by units of a level.
    fn is_level(&self) -> bool {
        matches!(self, Around::Loop(KernelLoopKind::Level(_) | KernelLoopKind::Chain, _))
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

    /// Parameters in order of first mention. Writing wins over reading. A buffer that reuses the memory of another
    /// one here has its parameter.
    fn declare_params(&mut self, places: &[(&Leaf, Path<'_>)]) -> Result<(), Diag> {
        let locals = self.plan.locals();
        let local: HashSet<&str> = locals.into_iter().filter_map(Local::buffer).collect();
        let mut uses = Vec::new();
        for (leaf, path) in places.iter().filter(|(leaf, _)| leaf.part.runs_instructions()) {
            let nest = self.nest(leaf)?;
            let around = self.held_around(path)?;
            for (at, inst) in nest.body.iter().enumerate() {
                let Some((buf, index)) = inst.op.element() else { continue };
                let data = &self.loops.bufs[buf];
                if index.len() != data.sizes.len() {
                    return Err(self.error(format!("{}: {} coordinates", data.name, index.len())));
                }
                let is_store = matches!(inst.op, InstOp::Store { .. });
                let is_local = match is_store {
                    true => around.iter().any(|held| held.buf == buf),
                    false => read_of(nest, (at, buf), around.iter().cloned()).1.is_some(),
                };
                // Another part of the nest touches it, where it is declared.
                let is_elsewhere = local.contains(&*data.name) && !parts_of(nest)[at].contains(&leaf.part);
                if !is_local && !is_elsewhere {
                    uses.push((buf, if is_store { MemorySpace::Write } else { MemorySpace::Read }));
                }
            }
        }
        let used: HashSet<Buf> = uses.iter().map(|used| used.0).collect();
        let device = self.loops.common_device(uses.iter().map(|used| used.0));
        for (buf, space) in uses {
            let over = self.names.over.get(&buf).filter(|over| used.contains(over));
            let (param, space) = over.map_or((buf, space), |&over| (over, MemorySpace::Update));
            let data = &self.loops.bufs[param];
            let mem = match self.mem_of.get(&param) {
                Some(&mem) => mem,
                None => {
                    let (sizes, strides) = (data.sizes.clone(), data.strides.clone());
                    self.params.push(param);
                    let (name, dtype) = (data.name.clone(), data.dtype);
                    self.kernel.mems.push(MemData { name, dtype, sizes, strides, space, swizzle: None })
                }
            };
            self.mem_of.extend([(param, mem), (buf, mem)]);
            // Coordinates of a buffer with other dimensions mean nothing there.
            let shape = |buf: Buf| (&self.loops.bufs[buf].sizes, &self.loops.bufs[buf].strides);
            if shape(buf) != shape(param) {
                let (name, space) = (data.name.clone(), self.kernel.mems[mem].space);
                self.kernel.mems[mem] = MemData::flat(name, data.dtype, data.span(), space);
            }
            if space != MemorySpace::Read {
                self.kernel.mems[mem].space = space;
            } else if data.is_number_for(device) {
                self.kernel.mems[mem].space = MemorySpace::Number;
            }
        }
        self.kernel.params = self.params.len();
        Ok(())
    }

    /// The local buffer that a declaration holds, if it is one of a buffer.
    fn held<'l>(&self, local: &'l Local) -> Result<Option<Held<'l>>, Diag> {
        let Some(name) = local.buffer() else { return Ok(None) };
        let buf = |name: &str| {
            let buf = self.names.bufs.get(name).copied();
            buf.ok_or_else(|| self.error(format!("no buffer {name}")))
        };
        let declared = self.locals.get(&std::ptr::from_ref(local)).cloned();
        let (buf, of) = (buf(name)?, local.copied().map(buf).transpose()?);
        Ok(Some(Held { buf, of, reader: local.reader(), declared }))
    }

    /// The local buffers that are declared around, outermost first.
    fn held_around<'l>(&self, path: &Path<'l>) -> Result<Vec<Held<'l>>, Diag> {
        path.locals.iter().filter_map(|local| self.held(local).transpose()).collect()
    }

    /// Memory of this kernel alone, under a name that nothing else has.
    fn local(&mut self, name: &str, dtype: Dtype, sizes: Vec<Expr>, space: MemorySpace) -> Mem {
        let name = self.kernel.free_memory_name(name);
        self.kernel.mems.push(MemData::dense(name, dtype, sizes, space))
    }

    fn value(&mut self, ty: Dtype) -> Val {
        self.kernel.vals.push(ty)
    }
}

/// Keeps of `facts` the ranges and divisors of the size symbols the kernel mentions, in name order.
pub(crate) fn declare_sizes(kernel: &mut Kernel, facts: &Facts) {
    let mut sizes = Vec::new();
    each_expr(kernel, &mut |e| {
        e.visit_syms(&mut |s| {
            if facts.is_symbol_declared(s) {
                sizes.push(s);
            }
        });
    });
    sizes.sort_unstable();
    sizes.dedup();
    kernel.facts = Facts::new();
    for &s in &sizes {
        kernel.facts.declare(s, facts.range_of(s), facts.hint(Expr::sym(s)));
        kernel.facts.declare_divisor(s, facts.divisor_of(s));
    }
    kernel.sizes = sizes;
}

/// The value a leaf binds `axis` to.
fn bound(leaf: &Leaf, axis: Sym) -> Option<Expr> {
    leaf.bind.iter().find(|(s, _)| *s == axis).map(|b| b.1)
}

/// The space of the kernel that a declaration means.
fn space_of(space: LocalSpace) -> MemorySpace {
    match space {
        LocalSpace::Register => MemorySpace::Register,
        LocalSpace::Scratch => MemorySpace::Scratch,
        LocalSpace::Shared => MemorySpace::Shared,
        LocalSpace::Cluster => MemorySpace::Cluster,
        LocalSpace::Global => MemorySpace::Global,
    }
}

/// Calls `f` on every expression a kernel mentions.
fn each_expr(kernel: &Kernel, f: &mut dyn FnMut(Expr)) {
    kernel.grid.iter().for_each(|Axis { extent, .. }| f(*extent));
    kernel.mems.values().for_each(|mem| mem.sizes.iter().chain(&mem.strides).for_each(|e| f(*e)));
    visit(&kernel.body, &mut |stmt| stmt.exprs().into_iter().for_each(&mut *f));
}
