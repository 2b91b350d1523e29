//! Nests of `mma` loops into instructions on tile registers (AMX): products of up to 16 rows, 16 columns and 64 bytes of
//! reduced elements.
//!
//! A nest of two by two tiles keeps its accumulators in tile registers while the loops around it run, which are recognised
//! together with the nest that sets the accumulators to zero. How the tile registers are divided is set once, before the
//! first grid point, since that takes as long as a hundred products of tiles. Where fewer rows or columns are left than
//! the division is for, another division takes its place for as long.

use std::fmt::Write as _;

use litz_ir::kernel::{Loop, LoopKind, Mem, Op, Stmt, position};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Known, Rel, Sym};

use super::block::Value;
use super::dot::Accumulation;
use super::index::Condition;
use super::ty::{Prim, Ty};
use super::{EmitError, Emitter, Form};

/// Rows, and columns of f32, of a tile register.
const SIDE: i64 = 16;
/// Tiles along each side of a nest that the tile registers hold.
const TILES: i64 = 2;
/// Reduced elements of one instruction: 64 bytes of bf16.
const DEPTH: i64 = 32;
/// Reduced elements that the right operand keeps side by side.
const GROUP: i64 = 2;
/// The scope before the loop over grid points.
const PREHEADER: usize = 1;

/// What tile registers hold: accumulators in 0 to 3, the left operand's tiles in 4 and 5, the right one's in 6 and 7.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    rows: i64,
    columns: i64,
    depth: i64,
}

impl Shape {
    /// Tile registers in use with their rows and bytes of a row.
    fn tiles(&self) -> Vec<(i64, i64, i64)> {
        let mut tiles = Vec::new();
        for (i, rows) in parts(self.rows) {
            tiles.push((4 + i, rows, 2 * self.depth));
            tiles.extend(parts(self.columns).map(|(j, columns)| (2 * i + j, rows, 4 * columns)));
        }
        tiles.extend(parts(self.columns).map(|(j, columns)| (6 + j, self.depth / GROUP, 4 * columns)));
        tiles
    }

    /// The 64 bytes of a configuration: palette 1; bytes of a row from byte 16, two for each tile; rows from byte 48.
    pub(super) fn literal(&self) -> String {
        let mut bytes = [0u8; 64];
        bytes[0] = 1;
        for (tile, rows, row_bytes) in self.tiles() {
            bytes[16 + 2 * tile as usize] = row_bytes as u8;
            bytes[48 + tile as usize] = rows as u8;
        }
        let mut text = String::from("[64 x i8] c\"");
        for byte in bytes {
            write!(text, "\\{byte:02X}").expect("invariant: writing to a string succeeds");
        }
        text.push('"');
        text
    }
}

/// The tiles along a side, with how much of each is used.
fn parts(extent: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..TILES).map(move |i| (i, (extent - SIDE * i).clamp(0, SIDE))).filter(|part| part.1 > 0)
}

/// An operand or the accumulators: element 0 of both axes, and distances along them.
#[derive(Clone, Copy)]
struct Table {
    mem: Mem,
    first: Expr,
    /// Elements between rows.
    row: Expr,
    /// Elements between columns.
    column: i64,
}

impl Table {
    fn at(&self, row: Expr, column: Expr) -> Expr {
        self.first + self.row * row + column * self.column
    }
}

/// A product of matrices with the loops that add to the same accumulators.
struct Product {
    loops: Vec<(Sym, Expr)>,
    rows: Expr,
    columns: Expr,
    depth: i64,
    left: Table,
    /// Rows are groups of reduced elements.
    right: Table,
    acc: Table,
    /// Accumulators start at zero, not at what memory holds.
    is_first: bool,
}

impl Emitter<'_> {
    /// Writes the product of matrices that `stmts` start with; the statements after it.
    pub(super) fn matrix<'k>(&mut self, stmts: &'k [Stmt]) -> Result<Option<&'k [Stmt]>, EmitError> {
        if !self.target.has("amx-bf16") || self.lanes.is_some() {
            return Ok(None);
        }
        let filled = stmts.first().and_then(zeroed);
        let at = usize::from(filled.is_some());
        let Some(product) = stmts.get(at).and_then(|stmt| self.product(stmt, filled.as_ref())) else {
            return Ok(None);
        };
        self.emit_product(&product)?;
        Ok(Some(&stmts[at + 1..]))
    }

    /// The product that a statement is, if tile registers can hold it.
    fn product(&self, stmt: &Stmt, filled: Option<&Filled>) -> Option<Product> {
        let mut facts = self.facts.clone();
        let (mut loops, mut units) = (Vec::new(), Vec::new());
        let mut body = std::slice::from_ref(stmt);
        while let [Stmt::Loop(Loop { kind, var, extent, body: inner })] = body {
            let extent = self.resolve(*extent);
            match kind {
                LoopKind::For if units.is_empty() => loops.push((*var, extent)),
                LoopKind::Mma => units.push((*var, extent)),
                LoopKind::For | LoopKind::Unroll | LoopKind::Vector { .. } => return None,
            }
            facts.declare_index(*var, extent);
            body = inner;
        }
        let sum = self.accumulation(body, Dtype::BF16)?;
        let Accumulation { factors, acc, index, .. } = sum;
        let in_memory = [factors[0].mem, factors[1].mem, acc].map(|mem| self.mems[mem].form == Form::Memory);
        if units.len() != 3 || in_memory != [true; 3] || factors.iter().any(|f| !f.guard.is_empty()) {
            return None;
        }
        if loops.iter().any(|l| index.has_sym(l.0)) {
            return None;
        }
        let in_acc = |unit: &&(Sym, Expr)| index.has_sym(unit.0);
        let &(depth, extent) = units.iter().find(|unit| !in_acc(unit))?;
        let depth_extent = extent.as_int().filter(|d| *d <= DEPTH && d % GROUP == 0)?;
        let mut sides = units.iter().filter(in_acc);
        let (mut row, mut column) = (*sides.next()?, *sides.next()?);
        // The accumulators' columns are contiguous.
        if index.linear(row.0).is_some_and(|(step, _)| step.is_one()) {
            (row, column) = (column, row);
        }
        let is_left = |e: Expr| e.has_sym(row.0) && !e.has_sym(column.0);
        let is_right = |e: Expr| e.has_sym(column.0) && !e.has_sym(row.0);
        let [a, b] = factors;
        let (left, right) = match () {
            () if is_left(a.index) && is_right(b.index) => (a, b),
            () if is_left(b.index) && is_right(a.index) => (b, a),
            () => return None,
        };
        let table = |mem: Mem, index: Expr, row: Sym, column: Sym, step: i64| -> Option<Table> {
            let (across, rest) = index.linear(column)?;
            let (down, first) = rest.linear(row)?;
            let is_fixed = |e: Expr| !e.has_sym(row) && !e.has_sym(column) && !e.has_sym(depth);
            (across.as_int() == Some(step) && is_fixed(down) && is_fixed(first)).then_some(Table {
                mem,
                first,
                row: down,
                column: step,
            })
        };
        let left = table(left.mem, self.resolve(left.index), row.0, depth, 1)?;
        let acc = table(acc, self.resolve(index), row.0, column.0, 1)?;
        let [group, element] = ["mma.group", "mma.element"].map(Sym::new);
        facts.declare_index(group, Expr::int(depth_extent / GROUP));
        facts.declare_index(element, Expr::int(GROUP));
        let split = self.resolve(right.index).replace(depth, Expr::sym(group) * GROUP + Expr::sym(element));
        let (step, right_index) = facts.simplify(split).linear(element)?;
        let right = table(right.mem, right_index, group, column.0, GROUP).filter(|_| step.is_one())?;
        let fits = |extent: Expr| self.facts.bounds(extent).hi <= SIDE * TILES;
        if !(fits(row.1) && fits(column.1)) {
            return None;
        }
        let is_first = match filled {
            None => false,
            Some(Filled { mem, index: start, extents }) => {
                let covers = |(var, extent): (Sym, Expr)| {
                    let along = extents.iter().find(|e| e.0 == var);
                    along.is_some_and(|a| self.facts.known(&Rel::le(extent, a.1)) == Known::Yes)
                };
                if *mem != acc.mem || *start != index || !covers(row) || !covers(column) {
                    return None;
                }
                true
            }
        };
        let (rows, columns) = (row.1, column.1);
        Some(Product { loops, rows, columns, depth: depth_extent, left, right, acc, is_first })
    }

    fn emit_product(&mut self, product: &Product) -> Result<(), EmitError> {
        let [rows, columns] = [product.rows, product.columns].map(|extent| self.facts.bounds(extent).hi);
        let shape = Shape { rows, columns, depth: product.depth };
        if self.tiles.is_none() {
            self.tiles = Some(shape);
            let text = self.division_text();
            self.b.effect_at(PREHEADER, &text);
        }
        let is_whole = [Rel::eq(product.rows, Expr::int(rows)), Rel::eq(product.columns, Expr::int(columns))];
        match self.condition(&is_whole)? {
            Condition::Always if self.tiles == Some(shape) => self.whole_tiles(product, shape)?,
            Condition::When(condition) if self.tiles == Some(shape) => {
                self.choose(&condition, &mut |cx| cx.whole_tiles(product, shape), &mut |cx| {
                    cx.clipped_tiles(product)
                })?
            }
            Condition::Always | Condition::When(_) | Condition::Never => self.clipped_tiles(product)?,
        }
        self.touch(&[product.acc.mem]);
        Ok(())
    }

    /// Two by two tiles, of the shape that the tile registers are divided for.
    fn whole_tiles(&mut self, product: &Product, shape: Shape) -> Result<(), EmitError> {
        let (rows, columns): (Vec<i64>, Vec<i64>) = (
            parts(shape.rows).map(|part| part.0).collect(),
            parts(shape.columns).map(|part| part.0).collect(),
        );
        let at = |i: i64| Expr::int(SIDE * i);
        let tiles: Vec<(i64, i64)> =
            rows.iter().flat_map(|&i| columns.iter().map(move |&j| (i, j))).collect();
        for &(i, j) in &tiles {
            self.start_tile(product, 2 * i + j, product.acc.at(at(i), at(j)))?;
        }
        self.sum_tiles(&product.loops, &mut |cx| {
            for &i in &rows {
                cx.load_tile(4 + i, &product.left, product.left.at(at(i), Expr::zero()))?;
            }
            for &j in &columns {
                cx.load_tile(6 + j, &product.right, product.right.at(Expr::zero(), at(j)))?;
            }
            for &(i, j) in &tiles {
                cx.multiply_tiles(2 * i + j, 4 + i, 6 + j);
            }
            Ok(())
        })?;
        tiles
            .iter()
            .try_for_each(|&(i, j)| self.store_tile(2 * i + j, &product.acc, product.acc.at(at(i), at(j))))
    }

    /// One tile after another, each with the tile registers divided for its rows and columns.
    fn clipped_tiles(&mut self, product: &Product) -> Result<(), EmitError> {
        let [i, j] = ["mma.i", "mma.j"].map(Sym::new);
        let division = self.b.alloca("[64 x i8], align 64");
        self.repeat(i, product.rows.ceildiv(SIDE), &mut |cx| {
            cx.repeat(j, product.columns.ceildiv(SIDE), &mut |cx| {
                let (row, column) = (Expr::sym(i) * SIDE, Expr::sym(j) * SIDE);
                cx.divide_tiles(&division, product, row, column)?;
                cx.start_tile(product, 0, product.acc.at(row, column))?;
                cx.sum_tiles(&product.loops, &mut |cx| {
                    cx.load_tile(4, &product.left, product.left.at(row, Expr::zero()))?;
                    cx.load_tile(6, &product.right, product.right.at(Expr::zero(), column))?;
                    cx.multiply_tiles(0, 4, 6);
                    Ok(())
                })?;
                cx.store_tile(0, &product.acc, product.acc.at(row, column))
            })
        })?;
        let text = self.division_text();
        self.b.effect(&text);
        Ok(())
    }

    /// Divides the tile registers for one tile of accumulators from `row` and `column` on.
    fn divide_tiles(
        &mut self,
        division: &Value,
        product: &Product,
        row: Expr,
        column: Expr,
    ) -> Result<(), EmitError> {
        let whole = Shape { rows: SIDE, columns: SIDE, depth: product.depth };
        self.b.effect(&format!("store {}, ptr {}, align 64", whole.literal(), division.text));
        let [rows, row_bytes] = [product.rows - row, (product.columns - column) * 4];
        for (extent, most, places) in [(rows, SIDE, [48, 52]), (row_bytes, 4 * SIDE, [16, 28])] {
            let extent = self.resolve(extent.min(Expr::int(most)));
            let extent = self.scalar(extent)?;
            let extent = self.b.convert("trunc", &extent, Prim::I8);
            for place in places {
                let place = self.b.int(Prim::I64, place);
                let address = self.advance(Ty::scalar(Prim::I8), division, &place);
                self.b.effect(&format!("store i8 {}, ptr {}, align 1", extent.text, address.text));
            }
        }
        self.b.effect(&format!("call void @llvm.x86.ldtilecfg(ptr {})", division.text));
        Ok(())
    }

    /// The instruction that divides the tile registers as they are from the first point on.
    fn division_text(&self) -> String {
        format!("call void @llvm.x86.ldtilecfg(ptr @{}.tiles)", self.kernel.name)
    }

    /// After the last point: tile registers in use make every change of threads dearer.
    pub(super) fn release_tiles(&mut self) {
        if self.tiles.is_some() {
            self.b.effect("call void @llvm.x86.tilerelease()");
        }
    }

    fn start_tile(&mut self, product: &Product, tile: i64, at: Expr) -> Result<(), EmitError> {
        if product.is_first {
            self.b.effect(&format!("call void @llvm.x86.tilezero(i8 {tile})"));
            return Ok(());
        }
        self.load_tile(tile, &product.acc, at)
    }

    fn load_tile(&mut self, tile: i64, table: &Table, at: Expr) -> Result<(), EmitError> {
        let place = self.tile_place(table, at)?;
        self.b.effect(&format!("call void @llvm.x86.tileloadd64(i8 {tile}, {place})"));
        Ok(())
    }

    fn store_tile(&mut self, tile: i64, table: &Table, at: Expr) -> Result<(), EmitError> {
        let place = self.tile_place(table, at)?;
        self.b.effect(&format!("call void @llvm.x86.tilestored64(i8 {tile}, {place})"));
        Ok(())
    }

    /// Address of a tile and the bytes between its rows.
    fn tile_place(&mut self, table: &Table, at: Expr) -> Result<String, EmitError> {
        let at = self.resolve(at);
        let address = self.address(table.mem, at)?;
        let bytes = self.resolve(table.row * self.mems[table.mem].dtype.size() as i64);
        let bytes = self.scalar(bytes)?;
        Ok(format!("ptr {}, i64 {}", address.text, bytes.text))
    }

    fn multiply_tiles(&mut self, acc: i64, left: i64, right: i64) {
        self.b.effect(&format!("call void @llvm.x86.tdpbf16ps(i8 {acc}, i8 {left}, i8 {right})"));
    }

    /// Runs `body` in all of `loops`.
    fn sum_tiles(
        &mut self,
        loops: &[(Sym, Expr)],
        body: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        match loops.split_first() {
            None => body(self),
            Some((&(var, extent), inner)) => self.repeat(var, extent, &mut |cx| cx.sum_tiles(inner, body)),
        }
    }

    /// A loop that writes no memory.
    fn repeat(
        &mut self,
        var: Sym,
        extent: Expr,
        body: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let extent = self.resolve(extent);
        self.facts.declare_index(var, extent);
        self.count(var, extent, 1, &[], body)
    }
}

/// Whether a loop does nothing but set accumulators.
pub(super) fn is_fill(inner: &Loop) -> bool {
    matches!(inner.body[..], [Stmt::Let { op: Op::Const(_), .. }, Stmt::Store { combine: None, .. }])
}

/// A nest that sets accumulators to zero.
struct Filled {
    mem: Mem,
    index: Expr,
    extents: Vec<(Sym, Expr)>,
}

fn zeroed(stmt: &Stmt) -> Option<Filled> {
    let mut extents = Vec::new();
    let mut body = std::slice::from_ref(stmt);
    while let [Stmt::Loop(Loop { kind: LoopKind::Mma, var, extent, body: inner })] = body {
        extents.push((*var, *extent));
        body = inner;
    }
    match body {
        [
            Stmt::Let { val, op: Op::Const(Scalar::Float(zero)) },
            Stmt::Store { mem, index, value, combine: None, guard, .. },
        ] if zero.to_bits() == 0 && val == value && guard.is_empty() && !extents.is_empty() => {
            Some(Filled { mem: *mem, index: position(index), extents })
        }
        _ => None,
    }
}
