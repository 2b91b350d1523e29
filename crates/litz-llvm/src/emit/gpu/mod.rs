//! Prints the functions of an NVIDIA GPU, which each thread of a block runs.
//!
//! ```text
//! define ptx_kernel void @k0(ptr addrspace(1) %p0, float %p1, i64 %s0, ptr addrspace(1) %status, ptr addrspace(1) %global,
//!                            ptr addrspace(1) %counts, i64 %points, ptr byval([128 x i8]) %box0)
//! ```
//!
//! - `p0` and so on: the parameters' elements, or where one is a number its value.
//! - `s0` and so on: the values of [`Kernel::sizes`].
//! - `status`: an `i32` that becomes the index of the check plus 1 where a `bind` fails.
//! - `global`: for each grid point [`Shape::global_bytes`].
//! - `counts`: an `i32` for each grid point, zero before and after, where [`Shape::counts_blocks`].
//! - `points`: how many grid points there are.
//! - `box0` and so on: descriptions of what boxes are cut out of, as [`Shape::boxes`] lists them.
//!
//! A block is launched for each grid point, or several where blocks run one together. Loops over levels become conditions on the number
//! of a thread. What stands outside of them every thread runs, but only the first one of those around stores to memory that others see.
//!
//! Addresses are generic in the text. LLVM finds out which memory each is in, from where the memory begins.

mod copies;
mod fragments;
mod lanes;
mod levels;
mod memory;
mod rings;
mod search;
mod sync;
mod teams;
mod warpgroups;
mod whole;

pub(super) use warpgroups::Products;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::rc::Rc;

use litz_ir::kernel::{Blocks, Kernel, Mem, MemorySpace, Roles, Shape, Stmt};
use litz_ir::target::Gpu;
use litz_sym::Expr;

use super::block::{ScopeKind, Value};
use super::ty::{self, Prim, Ty};
use super::{Bound, EmitError, Emitter, Form, Function, MemState, register};
use crate::processor::Processor;
use crate::vmath::library;
pub(super) use levels::Thread;

/// A parameter.
fn named(name: &str, ty: Ty) -> Value {
    Value { text: name.into(), ty, depth: 0 }
}

/// Whether the contents of a parameter are there before a kernel begins, and stay as long as it runs: the cache of a unit may keep them, which is not
/// told of stores of others. A kernel that starts early is there while the one before it stores, to what is no constant. Loads of what stays an
/// assembler puts where it likes, though, and those of constants ahead of a wait are to stay ahead of it.
fn stays(space: MemorySpace, shape: &Shape, target: &Processor) -> bool {
    let starts_early = shape.starts_early && target.starts_kernels_early();
    let is_constant = space == MemorySpace::Constant && !shape.loads_early;
    space.is_only_read() && (!starts_early || is_constant)
}

/// The function of a kernel.
pub(super) fn function(kernel: &Kernel, target: &Processor) -> Result<Function, EmitError> {
    let shape = Shape::of(kernel).map_err(|diag| EmitError::unsupported(diag.message))?;
    let starts_early = shape.starts_early && target.starts_kernels_early();
    let mut cx = Emitter::new(kernel, target, named("%status", Ty::PTR));
    let mut parameters = Vec::new();
    for (mem, data) in kernel.mems.iter().take(kernel.params) {
        let prim = ty::memory_type(data.dtype)?;
        let stays = stays(data.space, &shape, target);
        let is_only_read = if stays { " readonly" } else { "" };
        parameters.push(if data.space == MemorySpace::Number {
            format!("{} %p{}", Ty::scalar(prim), mem.0)
        } else {
            format!("ptr addrspace(1) noalias align {}{is_only_read} %p{}", Shape::ALIGNMENT, mem.0)
        });
    }
    for (index, &sym) in kernel.sizes.iter().enumerate() {
        let name = format!("%s{index}");
        parameters.push(format!("i64 {name}"));
        cx.syms.insert(sym, Bound::Scalar(named(&name, Ty::I64)));
    }
    for name in ["status", "global", "counts"] {
        parameters.push(format!("ptr addrspace(1) %{name}"));
    }
    parameters.push("i64 %points".into());
    for number in 0..shape.boxes.len() {
        parameters.push(format!(
            "ptr byval([{} x i8]) align 64 \"nvvm.grid_constant\" %box{number}",
            Shape::MAP_BYTES
        ));
    }

    if starts_early {
        cx.starts_early(shape.loads_early);
    }
    cx.status = cx.generic(1, "%status");
    cx.begin_thread(&shape)?;
    cx.blocks(&shape)?;
    let declarations = defined(std::mem::take(&mut cx.b.declarations))?;

    let mut text = String::new();
    if shape.shared_bytes > 0 {
        let _ =
            writeln!(text, "@shared_of_{} = external addrspace(3) global [0 x i8], align 1024", kernel.name);
    }
    let registers = shape.registers.map_or_else(String::new, |most| format!(" \"nvvm.maxnreg\"=\"{most}\""));
    let cluster = match (shape.blocks, shape.blocks_of_point.as_int()) {
        (Blocks::Cluster, Some(count)) => format!(" \"nvvm.cluster_dim\"=\"{count}\""),
        _ => String::new(),
    };
    write!(
        text,
        "define ptx_kernel void @{}({}) #0 \"nvvm.reqntid\"=\"{}\"{registers}{cluster} {{\n{}}}\n",
        kernel.name,
        parameters.join(", "),
        shape.threads,
        cx.b.finish()
    )
    .expect("invariant: writing to a string succeeds");
    Ok(Function { text, declarations })
}

/// Declarations with definitions in the place of those of functions that a GPU does not have.
fn defined(declarations: BTreeSet<String>) -> Result<BTreeSet<String>, EmitError> {
    let mut all = BTreeSet::new();
    for text in declarations {
        let Some(external) = text.strip_prefix("declare ") else {
            all.insert(text);
            continue;
        };
        let name = external.split_once('@').and_then(|(_, rest)| rest.split('(').next());
        let Some(definition) = name.and_then(library::definition) else {
            return Err(EmitError::unsupported(format!("a GPU has no function `{external}`")));
        };
        all.extend(definition);
    }
    Ok(all)
}

impl Emitter<'_> {
    /// A generic address of one in an address space.
    fn generic(&mut self, space: u32, address: &str) -> Value {
        self.b.pure(Ty::PTR, &[], format!("addrspacecast ptr addrspace({space}) {address} to ptr"))
    }

    /// A special register of the thread.
    fn special(&mut self, name: &str) -> Value {
        self.b.pure(Ty::scalar(Prim::I32), &[], format!("call i32 @llvm.nvvm.read.ptx.sreg.{name}()"))
    }

    /// Finds out which blocks run which points, and has each do that.
    fn blocks(&mut self, shape: &Shape) -> Result<(), EmitError> {
        let kernel = self.kernel;
        let id = self.special("ctaid.x");
        let id = self.b.convert("zext", &id, Prim::I64);
        let one = Expr::one();
        let (first, block) = if shape.blocks_of_point == one && shape.blocks == Blocks::One {
            (id, None)
        } else {
            let count = self.scalar(shape.blocks_of_point)?;
            let (point, block) = (self.b.binary("udiv", &id, &count), self.b.binary("urem", &id, &count));
            (point, Some(block))
        };
        if let Some(thread) = &mut self.thread {
            thread.block = block;
        }
        self.place_on_gpu(shape)?;
        let roles = Roles::of(kernel);
        self.begin_rings(shape, roles.as_ref())?;
        match roles {
            Some(roles) => self.roles(&roles, &first, shape)?,
            None => self.points(&kernel.body, &first, shape)?,
        }
        self.b.end("ret void");
        Ok(())
    }

    /// Has each thread of the warpgroup have so many registers from here on, more or fewer than before.
    fn has_registers(&mut self, change: &str, count: u32) {
        self.ptx(&format!("setmaxnreg.{change}.sync.aligned.u32 {count};"), &[]);
    }

    /// Does the points of a block, from the first one on. In every other round the blocks take them in the opposite order, so that one which had a long point,
    /// where long ones come first, has a short one next: of 8, 7, 6, .. iterations four blocks have 8 and 1, 7 and 2, 6 and 3, 5 and 4. Of two teams one
    /// has those of even rounds, the other one those of odd rounds.
    fn points(&mut self, body: &[Stmt], first: &Value, shape: &Shape) -> Result<(), EmitError> {
        let kernel = self.kernel;
        let Some(_) = kernel.persistent else { return self.point(body, first, shape) };
        if shape.blocks == Blocks::Many {
            return Err(EmitError::unsupported("persistent blocks of which several run a point"));
        }
        // Threads that copy have few registers.
        let is_small = self.facts.bounds(kernel.points()).hi <= i64::from(i32::MAX) / 2;
        let prim = if is_small { Prim::I32 } else { Prim::I64 };
        let mut width = self.special("nctaid.x");
        if shape.blocks == Blocks::Cluster {
            let count = self.scalar(shape.blocks_of_point)?;
            let count = self.b.convert("trunc", &count, Prim::I32);
            width = self.b.binary("udiv", &width, &count);
        }
        let (mut points, mut first) = (named("%points", Ty::I64), first.clone());
        if is_small {
            [points, first] = [points, first].map(|value| self.b.convert("trunc", &value, prim));
        } else {
            width = self.b.convert("zext", &width, prim);
        }
        // From its place in one round a block goes on to that in the next, and back: by `2 (width - first) - 1`, then by `2 first + 1`.
        let one = self.b.int(prim, 1);
        let both = self.b.binary("add", &width, &width);
        let after = self.b.binary("add", &first, &first);
        let after = self.b.binary("add", &after, &one);
        let mut step_of_first = self.b.binary("sub", &both, &after);
        let team = self.here()?.team.clone();
        if let Some(team) = &team {
            let is_first = self.b.compare("icmp eq", &team.number, &self.b.int(Prim::I32, 0));
            let second = self.b.binary("add", &first, &step_of_first);
            first = self.b.select(&is_first, &first, &second);
            step_of_first = both.clone();
            // There may be no second round.
            let (none, some) = (self.b.new_block(), self.b.new_block());
            let is_there = self.b.compare("icmp slt", &first, &points);
            self.b.branch(&is_there, some, none);
            self.b.continue_in(none);
            self.b.end("ret void");
            self.b.continue_in(some);
        }
        let (preheader, header, exit) = (self.b.block(), self.b.new_block(), self.b.new_block());
        self.b.jump(header);
        let mut written = self.changed(body);
        written.extend(self.seen_by_others().iter());
        written.sort_unstable();
        written.dedup();
        // No point finds in registers what another one has left there: only the counts of rings go on, which are no memory of the kernel.
        written.retain(|&mem| kernel.mems.get(mem).is_none() || self.mems[mem].form == Form::Memory);
        self.touch(&written);
        self.b.open(ScopeKind::Loop { preheader, header }, header, written);
        let [number, step] = [0, 1].map(|_| self.b.later_phi(Ty::scalar(prim)));
        let mut point = number.clone();
        if is_small {
            point = self.b.convert("zext", &point, Prim::I64);
        }
        self.point(body, &point, shape)?;
        let next = self.b.binary("add", &number, &step);
        let next_step = if team.is_some() { both.clone() } else { self.b.binary("sub", &both, &step) };
        let more = self.b.compare("icmp slt", &next, &points);
        let latch = self.b.block();
        self.b.write_phi(header, &number, &[(&first, preheader), (&next, latch)]);
        self.b.write_phi(header, &step, &[(&step_of_first, preheader), (&next_step, latch)]);
        self.b.branch(&more, header, exit);
        self.b.close_loop(exit);
        self.b.continue_in(exit);
        Ok(())
    }

    /// Does one point: coordinates are divided out of its number.
    fn point(&mut self, body: &[Stmt], point: &Value, shape: &Shape) -> Result<(), EmitError> {
        let kernel = self.kernel;
        self.place_global(shape, point)?;
        if let Some(thread) = &mut self.thread {
            thread.point = Some(point.clone());
        }
        let mut rest = point.clone();
        let small = self.facts.bounds(kernel.points()).hi <= i64::from(i32::MAX);
        let mut coordinates = Vec::new();
        for (number, axis) in kernel.grid.iter().enumerate().rev() {
            if number == 0 {
                coordinates.push(rest.clone());
                break;
            }
            let extent = self.scalar(axis.extent)?;
            let (quotient, remainder) = if small {
                let [x, y] = [&rest, &extent].map(|value| self.b.convert("trunc", value, Prim::I32));
                let both = [self.b.binary("udiv", &x, &y), self.b.binary("urem", &x, &y)];
                both.map(|value| self.b.convert("zext", &value, Prim::I64)).into()
            } else {
                (self.b.binary("udiv", &rest, &extent), self.b.binary("urem", &rest, &extent))
            };
            coordinates.push(remainder);
            rest = quotient;
        }
        coordinates.reverse();
        for (axis, coordinate) in kernel.grid.iter().zip(coordinates) {
            self.facts.declare_index(axis.var, axis.extent);
            self.syms.insert(axis.var, Bound::Scalar(coordinate));
        }
        if self.here()?.team.is_some() { self.point_of_team(body) } else { self.body(body) }
    }

    /// Finds the first element of memory that the threads of a point share.
    fn place_global(&mut self, shape: &Shape, point: &Value) -> Result<(), EmitError> {
        for (mem, data) in self.kernel.mems.iter() {
            if data.space == MemorySpace::Global {
                let bytes = self.scalar(shape.global_bytes)?;
                let start = self.generic(1, "%global");
                let own = self.b.binary("mul", point, &bytes);
                let place = self.scalar(shape.place(mem).unwrap_or(Expr::zero()))?;
                let start = self.advance(Ty::scalar(Prim::I8), &start, &own);
                self.mems[mem].base = self.advance(Ty::scalar(Prim::I8), &start, &place);
            }
        }
        Ok(())
    }

    /// Finds the first element of every piece of memory but those of a point.
    fn place_on_gpu(&mut self, shape: &Shape) -> Result<(), EmitError> {
        let forms = register::forms_of_threads(self.kernel);
        for (mem, data) in self.kernel.mems.iter() {
            let prim = ty::memory_type(data.dtype)?;
            let base = match (data.space, forms[&mem]) {
                (MemorySpace::Number, _) => {
                    let slot = self.b.alloca(&format!("{}, align 8", Ty::scalar(prim)));
                    self.b.effect_at(
                        0,
                        &[],
                        &format!("store {} %p{}, ptr {}, align 8", Ty::scalar(prim), mem.0, slot.text),
                    );
                    slot
                }
                (MemorySpace::Read | MemorySpace::Constant | MemorySpace::Write | MemorySpace::Update, _) => {
                    self.generic(1, &format!("%p{}", mem.0))
                }
                (
                    MemorySpace::Register | MemorySpace::Own | MemorySpace::Scratch,
                    Form::Slots { .. } | Form::Packed,
                ) => self.b.poison(Ty::PTR),
                (MemorySpace::Register | MemorySpace::Own | MemorySpace::Scratch, Form::Memory) => {
                    let most = self.facts.bounds(data.span()).hi;
                    if most > Gpu::SCRATCH_BYTES {
                        return Err(EmitError::unsupported(format!(
                            "memory `{}` of a thread, of which the size has no bound",
                            data.name
                        )));
                    }
                    self.b.alloca(&format!("[{} x {}], align 16", most.max(1), Ty::scalar(prim)))
                }
                (MemorySpace::Shared, _) => {
                    let place = shape.place(mem).and_then(|place| place.as_int()).unwrap_or(0);
                    let start = self.b.pure(
                        Ty::PTR,
                        &[],
                        format!(
                            "getelementptr i8, ptr addrspace(3) @shared_of_{}, i64 {place}",
                            self.kernel.name
                        ),
                    );
                    self.generic(3, &start.text)
                }
                (MemorySpace::Global, _) => self.b.poison(Ty::PTR),
                (MemorySpace::Cluster, _) => {
                    return Err(EmitError::unsupported(format!(
                        "`{}` is memory of a cluster's blocks",
                        data.name
                    )));
                }
            };
            let stays = stays(data.space, shape, self.target);
            self.mems.push(MemState { dtype: data.dtype, prim, form: forms[&mem], base, version: 0, stays });
        }
        Ok(())
    }

    /// What stands for the counts of the rings that statements turn.
    pub(super) fn counted(&self, stmts: &[Stmt]) -> Vec<Mem> {
        self.thread.as_ref().map_or_else(Vec::new, |thread| rings::counted(stmts, &thread.rings))
    }

    /// Memory that kernels in front may store to as long as nobody has waited for them.
    pub(super) fn made_by_kernels(&self) -> impl Iterator<Item = Mem> {
        self.kernel.mems.iter().filter(|(_, data)| data.space == MemorySpace::Read).map(|(mem, _)| mem)
    }

    /// Memories to which threads store what others load.
    pub(super) fn seen_by_others(&self) -> Rc<[Mem]> {
        self.thread.as_ref().map_or_else(Rc::default, |thread| Rc::clone(&thread.seen))
    }
}
