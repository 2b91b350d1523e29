//! Prints the products of a warpgroup: instructions that go on in the background, and read operands in shared memory by descriptors.
//!
//! ```text
//! wgmma.fence; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {sums}, left, right, 1, 1, 1, 0, 0;     the first one
//! wgmma.mma_async ..                                                                                         more of them
//! wgmma.commit_group; wgmma.wait_group 0;                                                                    wait products
//! wgmma.commit_group; ..; wgmma.wait_group 1;                                               commit products; ..; wait products 1
//! ```
//!
//! Sums are operands of the wait, too: nothing that reads them comes before it. Behind the descriptors are factors, and of each that the instruction
//! takes its rows for those of reduced points. (PTX ISA, asynchronous warpgroup-level matrix instructions.)

use litz_ir::Dtype;
use litz_ir::kernel::{Act, Fragment, FragmentProduct, Mem, Operand, Rows, Stmt, visit};
use litz_ir::target::{Instruction, Side};
use litz_sym::Expr;

use super::super::block::Value;
use super::super::ty::Prim;
use super::super::{EmitError, Emitter};
use super::fragments::{pieces, tuple};

/// Rows of shared memory that a descriptor counts together.
const ROWS: i64 = 8;

/// Bytes that a descriptor counts in.
const UNIT: i64 = 16;

/// The most units that it counts.
const MOST_UNITS: i64 = 0x3fff;

/// Products of a warpgroup that go on in the background.
#[derive(Default)]
pub(in super::super) struct Products {
    /// Sums of a thread, of each group, oldest first.
    groups: Vec<Vec<(Mem, i64)>>,
    /// Those of products that are in none yet.
    open: Vec<(Mem, i64)>,
}

/// What the name of an instruction says of types, and what follows its operands.
struct Form {
    operand: &'static str,
    sum: &'static str,
    /// Of a register of a sum.
    letter: &'static str,
    /// Whether operands have factors, all of which are 1 here.
    has_factors: bool,
    /// Whether operands may lie along the other dimension.
    may_transpose: bool,
}

impl Form {
    fn of(by: &Instruction) -> Option<Form> {
        let [operand, sum, letter] = match (by.dtype, by.sums) {
            (Dtype::BF16, Dtype::F32) => ["bf16", "f32", "f"],
            (Dtype::F16, Dtype::F32) => ["f16", "f32", "f"],
            (Dtype::F32, Dtype::F32) => ["tf32", "f32", "f"],
            (Dtype::F8E4M3, Dtype::F32) => ["e4m3", "f32", "f"],
            (Dtype::F8E5M2, Dtype::F32) => ["e5m2", "f32", "f"],
            (Dtype::I8, Dtype::I32) => ["s8", "s32", "r"],
            (Dtype::U8, Dtype::I32) => ["u8", "s32", "r"],
            _ => return None,
        };
        let (has_factors, may_transpose) = (letter == "f", by.dtype.size() == 2);
        Some(Form { operand, sum, letter, has_factors, may_transpose })
    }

    /// Whether to add to the sums, and then the factors of operands, and whether each of those `in_memory` is transposed.
    fn flags(&self, in_memory: &[&Rows]) -> String {
        let factors = if self.has_factors { 2 } else { 0 };
        let transposed = in_memory.iter().filter(|_| self.may_transpose);
        let transposed = transposed.map(|rows| if rows.is_transposed { "1" } else { "0" });
        std::iter::repeat_n("1", 1 + factors).chain(transposed).collect::<Vec<_>>().join(", ")
    }
}

impl Emitter<'_> {
    /// Begins to multiply, and to add to sums that a thread has.
    pub(super) fn multiply_by_warpgroup(&mut self, product: &FragmentProduct) -> Result<(), EmitError> {
        let FragmentProduct { by, columns, sum, left, right } = product;
        let unsupported = |what: &str| EmitError::unsupported(format!("{}: {what}", by.name));
        let form = Form::of(by).ok_or_else(|| unsupported("operands of these types"))?;
        let Operand::Rows(right) = right else {
            return Err(EmitError::malformed(
                "columns of a warpgroup's product that are not in shared memory",
            ));
        };
        let columns = i64::from(*columns);
        let mut operands = match left {
            Operand::Rows(rows) => vec![self.descriptor(by, rows)?],
            Operand::Own(fragment) => {
                let all = pieces(by, Side::Left, columns).into_iter();
                all.map(|at| self.piece(fragment, at, i64::from(by.group))).collect::<Result<_, _>>()?
            }
        };
        let registers = operands.len();
        operands.push(self.descriptor(by, right)?);
        let places = self.sums_of(by, sum, columns)?;
        let sums = self.load_sums(sum.mem, &places)?;
        let count = sums.len();
        let names = |from: usize, count: usize| {
            let all: Vec<String> = (from..from + count).map(|at| format!("${at}")).collect();
            all.join(",")
        };
        let begins = self.products.open.is_empty();
        let fence = if begins { "wgmma.fence.sync.aligned; " } else { "" };
        let fence = if begins && self.is_stored_by_threads(product) {
            format!("fence.proxy.async.shared::cta; {fence}")
        } else {
            fence.to_owned()
        };
        let (left_name, flags) = match left {
            Operand::Rows(left) => (names(count, 1), form.flags(&[left, right])),
            Operand::Own(_) => (format!("{{{}}}", names(count, registers)), form.flags(&[right])),
        };
        let text = format!(
            "{fence}wgmma.mma_async.sync.aligned.m64n{columns}k{}.{}.{operand}.{operand} {{{}}}, {left_name}, {}, {flags};",
            by.depth,
            form.sum,
            names(0, count),
            names(count + registers, 1),
            operand = form.operand,
        );
        let results = self.through(&text, form.letter, &sums, &operands);
        self.store_sums(sum.mem, &places, &results)?;
        let open = &mut self.products.open;
        open.extend(places.into_iter().map(|place| (sum.mem, place)));
        open.sort_unstable();
        open.dedup();
        Ok(())
    }

    /// Makes a group of the products that were begun since the last one.
    pub(super) fn commit_products(&mut self) {
        let open = std::mem::take(&mut self.products.open);
        self.products.groups.push(open);
        self.ptx("wgmma.commit_group.sync.aligned;", &[]);
    }

    /// Waits for all products that were begun, or for all groups of them but so many of the newest.
    pub(super) fn wait_for_products(&mut self, newest: u32) -> Result<(), EmitError> {
        if newest == 0 && !self.products.open.is_empty() {
            let open = std::mem::take(&mut self.products.open);
            self.products.groups.push(open);
            return self.wait_for_groups("wgmma.commit_group.sync.aligned; ", 0);
        }
        self.wait_for_groups("", newest as usize)
    }

    fn wait_for_groups(&mut self, commit: &str, newest: usize) -> Result<(), EmitError> {
        let groups = &mut self.products.groups;
        let done = groups.len().saturating_sub(newest);
        let begun: Vec<(Mem, i64)> = groups.drain(..done).flatten().collect();
        let mut sums = Vec::new();
        for &(mem, place) in &begun {
            sums.extend(self.load_sums(mem, &[place])?);
        }
        let letter = if sums.first().is_some_and(|sum| sum.ty.prim == Prim::I32) { "r" } else { "f" };
        let text = format!("{commit}wgmma.wait_group.sync.aligned {newest};");
        let results = self.through(&text, letter, &sums, &[]);
        for (&(mem, place), result) in begun.iter().zip(&results) {
            self.store_sums(mem, &[place], std::slice::from_ref(result))?;
        }
        Ok(())
    }

    /// The places of the sums of a thread, in the order in which instructions name them.
    fn sums_of(&self, by: &Instruction, sum: &Fragment, columns: i64) -> Result<Vec<i64>, EmitError> {
        let all = pieces(by, Side::Sums, columns).into_iter().flat_map(|at| [(at, 0), (at, 1)]);
        all.map(|(at, inner)| self.piece_place(sum, at, inner)).collect()
    }

    fn load_sums(&mut self, mem: Mem, places: &[i64]) -> Result<Vec<Value>, EmitError> {
        places.iter().map(|&place| self.load_if(mem, Expr::int(place), None)).collect()
    }

    fn store_sums(&mut self, mem: Mem, places: &[i64], values: &[Value]) -> Result<(), EmitError> {
        let mut all = places.iter().zip(values);
        all.try_for_each(|(&place, value)| self.store_if(mem, Expr::int(place), value, None))
    }

    /// What an instruction makes of values in registers, which it changes in place.
    fn through(&mut self, text: &str, letter: &str, values: &[Value], operands: &[Value]) -> Vec<Value> {
        let Some(of) = values.first().map(|value| value.ty) else {
            self.ptx(text, &[]);
            return Vec::new();
        };
        let kind = |value: &Value| if value.ty.prim.bits() == 64 { "l" } else { "r" }.to_owned();
        let constraints: Vec<String> = values
            .iter()
            .map(|_| format!("={letter}"))
            .chain(operands.iter().map(kind))
            .chain((0..values.len()).map(|at| at.to_string()))
            .chain(["~{memory}".to_owned()])
            .collect();
        let arguments: Vec<String> =
            operands.iter().chain(values).map(|value| format!("{} {}", value.ty, value.text)).collect();
        let result =
            if values.len() == 1 { of.to_string() } else { tuple(&of.to_string(), values.len() as i64) };
        let call = format!(
            "call {result} asm sideeffect \"{text}\", \"{}\"({}) #1",
            constraints.join(","),
            arguments.join(", ")
        );
        let all: Vec<&Value> = operands.iter().chain(values).collect();
        let found = self.b.impure(of, &all, &call);
        if values.len() == 1 {
            return vec![found];
        }
        (0..values.len()).map(|at| self.element_of(&found, &result, at, of)).collect()
    }

    /// Whether threads store to the operands in shared memory of a product, and not boxes alone.
    fn is_stored_by_threads(&self, product: &FragmentProduct) -> bool {
        let is_operand = |mem: Mem| {
            [&product.left, &product.right]
                .into_iter()
                .any(|operand| matches!(operand, Operand::Rows(rows) if rows.mem == mem))
        };
        let mut found = false;
        visit(&self.kernel.body, &mut |stmt| {
            let is_box = matches!(stmt, Stmt::Act(Act::BoxCopy(_)));
            found |= !is_box && stmt.stored().any(|(mem, _)| is_operand(mem));
        });
        found
    }

    /// The description of rows in shared memory: where they begin, in units of 16 bytes, those from a panel of columns to the next, those from
    /// eight rows to the next eight, and how their units change places.
    fn descriptor(&mut self, by: &Instruction, rows: &Rows) -> Result<Value, EmitError> {
        let data = &self.kernel.mems[rows.mem];
        let size = data.dtype.size() as i64;
        let unsupported = |what: &str| {
            Err(EmitError::unsupported(format!("{} of rows of `{}` {what}", by.name, data.name)))
        };
        let Some(swizzle) = data.swizzle.filter(|swizzle| swizzle.is_of_boxes(data.dtype.size())) else {
            return unsupported("whose units do not change places");
        };
        let bytes = i64::from(swizzle.row) * size;
        let mode: i64 = match bytes {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => return unsupported(&format!("of {bytes} bytes")),
        };
        let first = self.resolve(rows.first);
        let Some((step, first)) = first.linear(rows.row) else {
            return unsupported("that begin anywhere");
        };
        if step.as_int() != Some(i64::from(swizzle.row)) {
            return unsupported("that are not beside each other");
        }
        let address = self.address_from(rows.mem, &self.mems[rows.mem].base.clone(), first)?;
        let address = self.shared_word(&address);
        let [four, mask] = [4, MOST_UNITS].map(|value| self.b.int(Prim::I32, value));
        let units = self.b.binary("lshr", &address, &four);
        let units = self.b.binary("and", &units, &mask);
        let units = self.b.convert("zext", &units, Prim::I64);
        let panels = match &rows.panels {
            // What is no longer than a row has no panel behind it.
            None => Some(1),
            Some(panels) => panels.step.as_int().map(|step| step * size / UNIT),
        };
        let Some(panels) = panels.filter(|&units| (1..=MOST_UNITS).contains(&units)) else {
            return unsupported("in panels too far from each other");
        };
        let rest = mode << 62 | (ROWS * bytes / UNIT) << 32 | panels << 16;
        let rest = self.b.int(Prim::I64, rest);
        Ok(self.b.binary("or", &units, &rest))
    }
}
