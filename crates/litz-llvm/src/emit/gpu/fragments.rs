//! Prints the loads of operands and the products of a warp's instructions.

use litz_ir::Dtype;
use litz_ir::kernel::{Act, Fragment, FragmentLoad, FragmentProduct, Loop, Mem, Operand, Rows, Stmt};
use litz_ir::target::{Instruction, Side};
use litz_sym::{Expr, Range, Sym};

use super::super::block::{Slot, Value};
use super::super::ty::{Prim, Ty};
use super::super::{Bound, EmitError, Emitter, Form};

/// Bytes of a row that one lane finds the address of.
const UNIT: i64 = 16;

/// Matrices that lanes load together, at most.
const MATRICES: usize = 4;

/// Registers of a fragment in the order in which instructions name them: for each piece along the sum or the columns those of rows eight apart.
pub(super) fn pieces(by: &Instruction, side: Side, columns: i64) -> Vec<[i64; 2]> {
    let [along, down, _] = side.pieces(by, columns);
    (0..along).flat_map(|along| (0..down).map(move |down| [along, down])).collect()
}

impl Emitter<'_> {
    /// Where a piece begins in its memory.
    pub(super) fn piece_place(
        &self,
        fragment: &Fragment,
        [along, down]: [i64; 2],
        inner: i64,
    ) -> Result<i64, EmitError> {
        let place = self.resolve(fragment.place([along, down, inner].map(Expr::int)));
        place.as_int().ok_or_else(|| {
            let name = &self.kernel.mems[fragment.mem].name;
            EmitError::unsupported(format!("`{name}`, of which instructions take elements that data decides"))
        })
    }

    /// The elements of a piece as an instruction takes them: packed in a register of 32 bits, or one number.
    pub(super) fn piece(
        &mut self,
        fragment: &Fragment,
        at: [i64; 2],
        group: i64,
    ) -> Result<Value, EmitError> {
        let mem = fragment.mem;
        let first = self.piece_place(fragment, at, 0)?;
        if group == 1 {
            let value = self.load_if(mem, Expr::int(first), None)?;
            let is_word = value.ty.prim.bits() == 32;
            return Ok(if is_word { self.b.convert("bitcast", &value, Prim::I32) } else { value });
        }
        let is_packed = self.mems[mem].form == Form::Packed
            && first % group == 0
            && (self.piece_place(fragment, at, 1)? == first + 1);
        if is_packed {
            return Ok(self.packed(mem, first / group));
        }
        let dtype = self.mems[mem].dtype;
        let mut parts: Option<Value> = None;
        for inner in 0..group {
            let place = self.piece_place(fragment, at, inner)?;
            let value = self.load_if(mem, Expr::int(place), None)?;
            let value = self.narrow(&value, dtype);
            let ty = Ty { prim: value.ty.prim, lanes: group as u32 };
            let so_far = parts.unwrap_or_else(|| self.b.poison(ty));
            parts = Some(self.b.insert(&so_far, inner as u32, &value));
        }
        let parts = parts.ok_or_else(|| EmitError::malformed("a piece of no elements"))?;
        Ok(self.b.reinterpret(&parts, Ty::scalar(Prim::I32)))
    }

    /// A register of packed elements.
    pub(in super::super) fn packed(&mut self, mem: Mem, group: i64) -> Value {
        let zero = self.b.int(Prim::I32, 0);
        self.b.slot(Slot { mem, group }, &zero)
    }

    fn set_piece(
        &mut self,
        fragment: &Fragment,
        at: [i64; 2],
        group: i64,
        value: &Value,
    ) -> Result<(), EmitError> {
        let mem = fragment.mem;
        let first = self.piece_place(fragment, at, 0)?;
        let is_packed = group > 1 && self.mems[mem].form == Form::Packed && first % group == 0;
        if is_packed && self.piece_place(fragment, at, 1)? == first + 1 {
            self.b.set_slot(Slot { mem, group: first / group }, value.clone());
            return Ok(());
        }
        let dtype = self.mems[mem].dtype;
        let bits = 32 / group as u32;
        let parts = self.b.reinterpret(value, Ty { prim: Prim::int(bits), lanes: group as u32 });
        for inner in 0..group {
            let part = self.b.extract(&parts, inner as u32);
            let part = self.b.convert("bitcast", &part, self.mems[mem].prim);
            let part = self.widen(&part, dtype);
            let place = self.piece_place(fragment, at, inner)?;
            self.store_if(mem, Expr::int(place), &part, None)?;
        }
        Ok(())
    }

    /// Loads a fragment: matrices of eight rows of 16 bytes, of which each lane finds the address of one.
    pub(in super::super) fn load_fragment(&mut self, load: &FragmentLoad) -> Result<(), EmitError> {
        let FragmentLoad { by, side, into, .. } = load;
        let all = pieces(by, *side, by.columns.into());
        for some in all.chunks(MATRICES) {
            // Matrices of the lanes: as many as there are pieces, in their order.
            let count = some.len() as i64;
            let (along, down) = (some[0][0], side.pieces(by, by.columns.into())[1]);
            let loaded = self.load_matrices(load, [count, along, down], count as usize, None)?;
            for (&at, register) in some.iter().zip(&loaded) {
                self.set_piece(into, at, i64::from(by.group), register)?;
            }
        }
        self.touch(&[into.mem]);
        Ok(())
    }

    /// Loads fragments of two matrices in a written-out loop, those of two iterations at once. False where the loop does something else.
    pub(in super::super) fn load_pairs(&mut self, inner: &Loop, count: i64) -> Result<bool, EmitError> {
        let [Stmt::Act(Act::FragmentLoad(load))] = &inner.body[..] else { return Ok(false) };
        let FragmentLoad { by, side, into, .. } = load;
        let all = pieces(by, *side, by.columns.into());
        if all.len() * 2 != MATRICES || count % 2 != 0 {
            return Ok(false);
        }
        let down = side.pieces(by, by.columns.into())[1];
        for first in (0..count).step_by(2) {
            let loaded = self.load_matrices(load, [2, 0, down], MATRICES, Some((inner.var, first)))?;
            for (number, registers) in loaded.chunks(all.len()).enumerate() {
                self.syms.insert(inner.var, Bound::Constant(first + number as i64));
                for (&at, register) in all.iter().zip(registers) {
                    self.set_piece(into, at, i64::from(by.group), register)?;
                }
            }
            self.syms.remove(&inner.var);
        }
        self.touch(&[into.mem]);
        Ok(true)
    }

    /// The registers of so many matrices that lanes load together.
    fn load_matrices(
        &mut self,
        load: &FragmentLoad,
        of_fragment: [i64; 3],
        count: usize,
        iteration: Option<(Sym, i64)>,
    ) -> Result<Vec<Value>, EmitError> {
        let FragmentLoad { by, rows, .. } = load;
        let size = by.dtype.size() as i64;
        if size > 4 || rows.is_transposed && size != 2 {
            return Err(EmitError::unsupported(format!("rows of {} that lanes load together", by.dtype)));
        }
        let address = self.row_of_lane(rows, of_fragment, UNIT / size, iteration)?;
        let address = self.shared(&address);
        let transposed = if rows.is_transposed { ".trans" } else { "" };
        let result = if count == 1 { "i32".into() } else { tuple("i32", count as i64) };
        let text = format!(
            "call {result} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{transposed}.b16.p3(ptr addrspace(3) {})",
            address.text
        );
        let loaded = self.b.impure(Ty::scalar(Prim::I32), &[&address], &text);
        if count == 1 {
            return Ok(vec![loaded]);
        }
        Ok((0..count).map(|at| self.element_of(&loaded, &result, at, Ty::scalar(Prim::I32))).collect())
    }

    /// The address that a lane finds: matrix `lane / 8` of `count`, row `lane % 8` of it, in the iteration of a loop from a first one on that has
    /// these matrices.
    fn row_of_lane(
        &mut self,
        rows: &Rows,
        [count, first_along, down]: [i64; 3],
        unit: i64,
        iteration: Option<(Sym, i64)>,
    ) -> Result<Value, EmitError> {
        let sym = Sym::new("fragment.lane");
        let lane = self.lane();
        let lane = self.b.convert("zext", &lane, Prim::I64);
        self.facts.declare(sym, Range::new(0, 31), None);
        self.syms.insert(sym, Bound::Scalar(lane));
        let lane = Expr::sym(sym);
        let matrix = lane.floordiv(8).modulo(count);
        let (along, below) = (matrix.floordiv(down) + first_along, matrix.modulo(down));
        // Of rows of reduced points the eights of the matrix's rows lie beside each other, and those of the sum below.
        let (row, beside) = if rows.is_transposed {
            (lane.modulo(8) + along * 8, below * 8)
        } else {
            (lane.modulo(8) + below * 8, along * unit)
        };
        let mut first = self.resolve(rows.first);
        if let Some((var, number)) = iteration {
            first = first.replace(var, lane.floordiv(8 * count) + number);
        }
        let index = first.replace(rows.row, row) + beside;
        let index = self.facts.simplify(index);
        let address = self.address(rows.mem, index)?;
        self.syms.remove(&sym);
        Ok(address)
    }

    /// Multiplies fragments.
    pub(in super::super) fn multiply_fragments(
        &mut self,
        product: &FragmentProduct,
    ) -> Result<(), EmitError> {
        let FragmentProduct { by, columns, sum, left, right } = product;
        let by = *by;
        let (Operand::Own(left), Operand::Own(right)) = (left, right) else {
            return self.multiply_by_warpgroup(product);
        };
        let columns = i64::from(*columns);
        let group = i64::from(by.group);
        let mut operands = Vec::new();
        for (fragment, side) in [(left, Side::Left), (right, Side::Right)] {
            for at in pieces(by, side, columns) {
                let piece = self.piece(fragment, at, group)?;
                operands.push(if by.dtype == Dtype::F32 { self.nearest_tf32(&piece) } else { piece });
            }
        }
        let places: Vec<([i64; 2], i64)> =
            pieces(by, Side::Sums, columns).into_iter().flat_map(|at| [(at, 0), (at, 1)]).collect();
        let mut sums = Vec::new();
        for &(at, inner) in &places {
            let place = self.piece_place(sum, at, inner)?;
            sums.push(self.load_if(sum.mem, Expr::int(place), None)?);
        }
        let of = sums[0].ty;
        let text = product_text(by, &operands, &sums)?;
        let all: Vec<&Value> = operands.iter().chain(&sums).collect();
        let result = self.b.impure(of, &all, &text);
        let tuple = tuple(&of.to_string(), sums.len() as i64);
        for (number, &(at, inner)) in places.iter().enumerate() {
            let value = self.element_of(&result, &tuple, number, of);
            let place = self.piece_place(sum, at, inner)?;
            self.store_if(sum.mem, Expr::int(place), &value, None)?;
        }
        Ok(())
    }

    /// The number of tf32 that is nearest to one of f32: instructions take the leading bits of their operands, so that all numbers would become smaller.
    fn nearest_tf32(&mut self, value: &Value) -> Value {
        let float = self.b.convert("bitcast", value, Prim::F32);
        self.b.call(Ty::scalar(Prim::I32), "llvm.nvvm.f2tf32.rna", &[&float])
    }

    /// An element of what an instruction gives.
    pub(super) fn element_of(&mut self, result: &Value, tuple: &str, number: usize, ty: Ty) -> Value {
        self.b.impure(ty, &[result], &format!("extractvalue {tuple} {}, {number}", result.text))
    }
}

/// So many results of one type.
pub(super) fn tuple(ty: &str, count: i64) -> String {
    let all: Vec<&str> = (0..count).map(|_| ty).collect();
    format!("{{ {} }}", all.join(", "))
}

/// The instruction: `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 sums, left, right, sums`.
fn product_text(by: &Instruction, operands: &[Value], sums: &[Value]) -> Result<String, EmitError> {
    let unknown = || EmitError::unsupported(format!("{}: no such instruction", by.name));
    let mut parts = by.name.split('.');
    let (Some("mma"), Some(shape), Some(of)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(unknown());
    };
    let known = [(Dtype::F32, "f32", 'f'), (Dtype::I32, "s32", 'r'), (Dtype::F64, "f64", 'd')];
    let (_, sum, letter) = known.into_iter().find(|of| of.0 == by.sums).ok_or_else(unknown)?;
    let operand = if by.dtype == Dtype::F64 { 'd' } else { 'r' };
    let left = Side::Left.elements(by, by.columns.into()) as usize / by.group as usize;
    let names = |from: usize, count: usize| {
        let all: Vec<String> = (from..from + count).map(|at| format!("${at}")).collect();
        format!("{{{}}}", all.join(","))
    };
    let count = sums.len();
    let constraints: Vec<String> = (0..count)
        .map(|_| format!("={letter}"))
        .chain(operands.iter().map(|_| operand.to_string()))
        .chain((0..count).map(|_| letter.to_string()))
        .collect();
    let arguments: Vec<String> =
        operands.iter().chain(sums).map(|value| format!("{} {}", value.ty, value.text)).collect();
    Ok(format!(
        "call {} asm \"mma.sync.aligned.{shape}.row.col.{sum}.{of}.{of}.{sum} {}, {}, {}, {};\", \"{}\"({}) #1",
        tuple(&sums[0].ty.to_string(), count as i64),
        names(0, count),
        names(count, left),
        names(count + left, operands.len() - left),
        names(count + operands.len(), count),
        constraints.join(","),
        arguments.join(", "),
    ))
}
