//! Prints the functions of a CPU.
//!
//! Every kernel becomes one function, which runs a range of grid points:
//!
//! ```text
//! define void @k0(ptr %args, ptr %sizes, i64 %begin, i64 %end, ptr %scratch, ptr %status)
//! ```
//!
//! - `args`: pointers to the parameters' elements, in order.
//! - `sizes`: `i64` values of [`Kernel::sizes`], in order.
//! - `begin`, `end`: the points, numbered row-major over [`Kernel::grid`].
//! - `scratch`: [`Kernel::scratch_bytes`] bytes, aligned to 64, of no one else.
//! - `status`: an `i64` that becomes the index of the check plus 1 where a `bind` fails; the function then returns
//!   at once. Otherwise it is left alone.

use std::collections::HashMap;
use std::fmt::Write as _;

use litz_ir::kernel::{Kernel, Mem, MemorySpace};
use litz_sym::Expr;

use super::block::{ScopeKind, Value};
use super::ty::{self, Prim, Ty};
use super::{Bound, EmitError, Emitter, Form, Function, MemState, body, register};
use crate::processor::Processor;

pub(super) fn function(kernel: &Kernel, target: &Processor) -> Result<Function, EmitError> {
    let argument = |name: &str, ty: Ty| Value { text: name.into(), ty, depth: 0 };
    let mut cx = Emitter::new(kernel, target, argument("%status", Ty::PTR));
    let sizes = argument("%sizes", Ty::PTR);
    for (index, &sym) in kernel.sizes.iter().enumerate() {
        let value = cx.load_argument(Ty::I64, &sizes, index);
        cx.syms.insert(sym, Bound::Scalar(value));
    }
    cx.place_memory(&argument("%args", Ty::PTR), &argument("%scratch", Ty::PTR))?;
    cx.grid(&argument("%begin", Ty::I64), &argument("%end", Ty::I64))?;

    let mut text = String::new();
    if cx.zeros > 0 {
        text = format!(
            "@{}.zeros = private global [{} x i8] zeroinitializer, align 64\n",
            kernel.name, cx.zeros
        );
    }
    if let Some(shape) = cx.tiles {
        text.push_str(&format!("@{}.tiles = private constant {}, align 64\n", kernel.name, shape.literal()));
    }
    let declarations = std::mem::take(&mut cx.b.declarations);
    write!(
        text,
        "define void @{}(ptr %args, ptr %sizes, i64 %begin, i64 %end, ptr %scratch, ptr %status) #0 {{\n{}}}\n",
        kernel.name,
        cx.b.finish()
    )
    .expect("invariant: writing to a string succeeds");
    Ok(Function { text, declarations })
}

impl Emitter<'_> {
    /// Element `index` of an array of arguments.
    fn load_argument(&mut self, ty: Ty, array: &Value, index: usize) -> Value {
        let offset = self.b.int(Prim::I64, index as i64);
        let address = self.advance(Ty::I64, array, &offset);
        let text = format!("load {ty}, ptr {}, align 8", address.text);
        self.b.read(ty, 0, 0, &[&address], text)
    }

    /// Finds the first element of every piece of memory.
    fn place_memory(&mut self, args: &Value, scratch: &Value) -> Result<(), EmitError> {
        let forms = register::forms(self.kernel);
        let offsets: HashMap<Mem, Expr> =
            self.kernel.scratch().map(|(mem, offset, _)| (mem, offset)).collect();
        for (mem, data) in self.kernel.mems.iter() {
            let prim = ty::memory_type(data.dtype)?;
            let base = match (data.space, forms[&mem]) {
                (
                    MemorySpace::Read
                    | MemorySpace::Constant
                    | MemorySpace::Number
                    | MemorySpace::Write
                    | MemorySpace::Update,
                    _,
                ) => self.load_argument(Ty::PTR, args, mem.0 as usize),
                (MemorySpace::Register, Form::Slots { .. } | Form::Packed) => self.b.poison(Ty::PTR),
                (MemorySpace::Register, Form::Memory) => {
                    let Some(extent) = data.span().as_int() else {
                        return Err(EmitError::malformed(format!(
                            "register `{}` has no constant extent",
                            data.name
                        )));
                    };
                    self.b.alloca(&format!("[{extent} x {}], align 64", Ty::scalar(prim)))
                }
                (MemorySpace::Own | MemorySpace::Shared | MemorySpace::Cluster | MemorySpace::Global, _) => {
                    return Err(EmitError::unsupported(format!(
                        "`{}` is memory of a GPU's threads",
                        data.name
                    )));
                }
                (MemorySpace::Scratch, _) => {
                    let offset = self.scalar(offsets[&mem])?;
                    self.advance(Ty::scalar(Prim::I8), scratch, &offset)
                }
            };
            self.mems.push(MemState {
                dtype: data.dtype,
                prim,
                form: forms[&mem],
                base,
                version: 0,
                stays: false,
            });
        }
        Ok(())
    }

    /// The loop over grid points: coordinates are divided out once and then counted up like an odometer.
    fn grid(&mut self, begin: &Value, end: &Value) -> Result<(), EmitError> {
        let axes = &self.kernel.grid;
        let extents = axes.iter().map(|axis| self.scalar(axis.extent)).collect::<Result<Vec<_>, _>>()?;
        let (preheader, exit) = (self.b.new_block(), self.b.new_block());
        let some = self.b.compare("icmp slt", begin, end);
        self.b.branch(&some, preheader, exit);

        self.b.open(ScopeKind::Arm, preheader, Vec::new());
        let mut rest = begin.clone();
        let mut first = Vec::new();
        for extent in extents.iter().rev() {
            // Not shared or hoisted: the divisor is only sure to be positive where there are points.
            first.push(self.b.impure(
                Ty::I64,
                &[&rest, extent],
                &format!("urem i64 {}, {}", rest.text, extent.text),
            ));
            rest =
                self.b.impure(Ty::I64, &[&rest, extent], &format!("udiv i64 {}, {}", rest.text, extent.text));
        }
        first.reverse();
        let header = self.b.new_block();
        self.b.jump(header);

        let mut written = body::written(&self.kernel.body);
        written.retain(|&mem| self.mems[mem].form == Form::Memory);
        self.touch(&written);
        self.b.open(ScopeKind::Loop { preheader, header }, header, written);
        let point = self.b.later_phi(Ty::I64);
        let coordinates: Vec<Value> = axes.iter().map(|_| self.b.later_phi(Ty::I64)).collect();
        for (axis, coordinate) in axes.iter().zip(&coordinates) {
            self.facts.declare_index(axis.var, axis.extent);
            self.syms.insert(axis.var, Bound::Scalar(coordinate.clone()));
        }
        self.body(&self.kernel.body)?;

        let one = self.b.int(Prim::I64, 1);
        let zero = self.b.int(Prim::I64, 0);
        let next_point = self.b.binary("add", &point, &one);
        let mut carry = self.b.int(Prim::I1, 1);
        let mut next = Vec::new();
        for (index, coordinate) in coordinates.iter().enumerate().rev() {
            let step = self.b.convert("zext", &carry, Prim::I64);
            let sum = self.b.binary("add", coordinate, &step);
            let wraps = self.b.compare("icmp eq", &sum, &extents[index]);
            next.push(self.b.select(&wraps, &zero, &sum));
            carry = wraps;
        }
        next.reverse();
        let more = self.b.compare("icmp slt", &next_point, end);
        let latch = self.b.block();
        self.b.write_phi(header, &point, &[(begin, preheader), (&next_point, latch)]);
        for ((coordinate, first), next) in coordinates.iter().zip(&first).zip(&next) {
            self.b.write_phi(header, coordinate, &[(first, preheader), (next, latch)]);
        }
        self.b.branch(&more, header, exit);
        self.b.close_loop(exit);
        self.b.close_arm();
        self.b.continue_in(exit);
        self.release_tiles();
        self.b.end("ret void");
        Ok(())
    }
}
