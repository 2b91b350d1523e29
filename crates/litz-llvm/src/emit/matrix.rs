//! Writes products of matrices as instructions on tile registers (AMX), of up to 16 rows, 16 columns and 64 bytes of reduced
//! elements.
//!
//! A product of two by two tiles keeps its sums in tile registers until it is done. How the tile registers are divided is
//! set once, before the first grid point, since that takes as long as a hundred products of tiles. Where fewer rows or
//! columns are left than the division is for, or more, another division takes its place for as long, for one tile at a time.

use std::fmt::Write as _;

use litz_ir::kernel::{Matrix, MatrixProduct};
use litz_ir::loops::Axis;
use litz_sym::{Expr, Rel, Sym};

use super::block::Value;
use super::index::Condition;
use super::ty::{Prim, Ty};
use super::{EmitError, Emitter};

/// Rows, and columns of f32, of a tile register.
const SIDE: i64 = 16;
/// Tiles along each side of a nest that the tile registers hold.
const TILES: i64 = 2;
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
            // Elements of the operands are bf16, of two bytes, those of accumulators f32, of four.
            tiles.push((4 + i, rows, 2 * self.depth));
            tiles.extend(parts(self.columns).map(|(j, columns)| (2 * i + j, rows, 4 * columns)));
        }
        // A row of the right operand's tile has the two elements of a group for each column.
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

impl Emitter<'_> {
    pub(super) fn matrix_product(&mut self, product: &MatrixProduct) -> Result<(), EmitError> {
        let MatrixProduct { by, rows, columns, depth, .. } = product;
        if by.name != "amx.tdpbf16ps" || !self.target.has("amx-bf16") {
            return Err(EmitError::unsupported(format!("{}: the target has no such instruction", by.name)));
        }
        if self.lanes.is_some() {
            return Err(EmitError::unsupported("a product of matrices in a vector loop"));
        }
        let mut product = product.clone();
        [product.rows, product.columns] = [*rows, *columns].map(|extent| self.resolve(extent));
        let product = &product;
        let [rows, columns] =
            [product.rows, product.columns].map(|extent| self.facts.bounds(extent).hi.min(SIDE * TILES));
        let shape = Shape { rows, columns, depth: i64::from(*depth) };
        if self.tiles.is_none() {
            self.tiles = Some(shape);
            let text = self.division_text();
            self.b.effect_at(PREHEADER, &[], &text);
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
        self.touch(&[product.sum.mem]);
        Ok(())
    }

    /// Two by two tiles, of the shape that the tile registers are divided for.
    fn whole_tiles(&mut self, product: &MatrixProduct, shape: Shape) -> Result<(), EmitError> {
        let (rows, columns): (Vec<i64>, Vec<i64>) = (
            parts(shape.rows).map(|part| part.0).collect(),
            parts(shape.columns).map(|part| part.0).collect(),
        );
        let at = |i: i64| Expr::int(SIDE * i);
        let tiles: Vec<(i64, i64)> =
            rows.iter().flat_map(|&i| columns.iter().map(move |&j| (i, j))).collect();
        for &(i, j) in &tiles {
            self.start_tile(product, 2 * i + j, product.sum.place(at(i), at(j)))?;
        }
        // A tile that is loaded of one operand is multiplied with both tiles of the other: four products for four loads, where
        // one tile of accumulators would need two loads for each product.
        self.sum_tiles(&product.over, &mut |cx| {
            for &i in &rows {
                cx.load_tile(4 + i, &product.left, product.left.place(at(i), Expr::zero()))?;
            }
            for &j in &columns {
                cx.load_tile(6 + j, &product.right, product.right.place(Expr::zero(), at(j) * GROUP))?;
            }
            for &(i, j) in &tiles {
                cx.multiply_tiles(2 * i + j, 4 + i, 6 + j);
            }
            Ok(())
        })?;
        tiles
            .iter()
            .try_for_each(|&(i, j)| self.store_tile(2 * i + j, &product.sum, product.sum.place(at(i), at(j))))
    }

    /// One tile after another, each with the tile registers divided for its rows and columns.
    fn clipped_tiles(&mut self, product: &MatrixProduct) -> Result<(), EmitError> {
        let [i, j] = ["mma.i", "mma.j"].map(Sym::new);
        let division = self.b.alloca("[64 x i8], align 64");
        self.repeat(i, product.rows.ceildiv(SIDE), &mut |cx| {
            cx.repeat(j, product.columns.ceildiv(SIDE), &mut |cx| {
                let (row, column) = (Expr::sym(i) * SIDE, Expr::sym(j) * SIDE);
                cx.divide_tiles(&division, product, row, column)?;
                cx.start_tile(product, 0, product.sum.place(row, column))?;
                cx.sum_tiles(&product.over, &mut |cx| {
                    cx.load_tile(4, &product.left, product.left.place(row, Expr::zero()))?;
                    cx.load_tile(6, &product.right, product.right.place(Expr::zero(), column * GROUP))?;
                    cx.multiply_tiles(0, 4, 6);
                    Ok(())
                })?;
                cx.store_tile(0, &product.sum, product.sum.place(row, column))
            })
        })?;
        // Products of whole tiles rely on the division that was set before the first grid point.
        let text = self.division_text();
        self.b.effect(&[], &text);
        Ok(())
    }

    /// Divides the tile registers for one tile of accumulators from `row` and `column` on.
    fn divide_tiles(
        &mut self,
        division: &Value,
        product: &MatrixProduct,
        row: Expr,
        column: Expr,
    ) -> Result<(), EmitError> {
        let whole = Shape { rows: SIDE, columns: SIDE, depth: i64::from(product.depth) };
        let text = format!("store {}, ptr {}, align 64", whole.literal(), division.text);
        self.b.effect(&[division], &text);
        let [rows, row_bytes] = [product.rows - row, (product.columns - column) * 4];
        // Rows of the accumulators (tile 0) and of the left operand (tile 4); bytes of a row of the accumulators and of the right
        // operand (tile 6). See `Shape::literal` for the bytes.
        for (extent, most, places) in [(rows, SIDE, [48, 52]), (row_bytes, 4 * SIDE, [16, 28])] {
            let extent = self.resolve(extent.min(Expr::int(most)));
            let extent = self.scalar(extent)?;
            let extent = self.b.convert("trunc", &extent, Prim::I8);
            for place in places {
                let place = self.b.int(Prim::I64, place);
                let address = self.advance(Ty::scalar(Prim::I8), division, &place);
                let text = format!("store i8 {}, ptr {}, align 1", extent.text, address.text);
                self.b.effect(&[&extent, &address], &text);
            }
        }
        self.b.effect(&[division], &format!("call void @llvm.x86.ldtilecfg(ptr {})", division.text));
        Ok(())
    }

    /// The instruction that divides the tile registers as they are from the first point on.
    fn division_text(&self) -> String {
        format!("call void @llvm.x86.ldtilecfg(ptr @{}.tiles)", self.kernel.name)
    }

    /// After the last point: tile registers in use make every change of threads dearer.
    pub(super) fn release_tiles(&mut self) {
        if self.tiles.is_some() {
            self.b.effect(&[], "call void @llvm.x86.tilerelease()");
        }
    }

    fn start_tile(&mut self, product: &MatrixProduct, tile: i64, at: Expr) -> Result<(), EmitError> {
        if product.is_from_zero {
            self.b.effect(&[], &format!("call void @llvm.x86.tilezero(i8 {tile})"));
            return Ok(());
        }
        self.load_tile(tile, &product.sum, at)
    }

    fn load_tile(&mut self, tile: i64, matrix: &Matrix, at: Expr) -> Result<(), EmitError> {
        self.move_tile("tileloadd64", tile, matrix, at)
    }

    fn store_tile(&mut self, tile: i64, matrix: &Matrix, at: Expr) -> Result<(), EmitError> {
        self.move_tile("tilestored64", tile, matrix, at)
    }

    /// Loads or stores a tile, by its address and the bytes between its rows.
    fn move_tile(&mut self, name: &str, tile: i64, matrix: &Matrix, at: Expr) -> Result<(), EmitError> {
        let at = self.resolve(at);
        let address = self.address(matrix.mem, at)?;
        let bytes = self.resolve(matrix.step * self.mems[matrix.mem].dtype.size() as i64);
        let bytes = self.scalar(bytes)?;
        let text = format!("call void @llvm.x86.{name}(i8 {tile}, ptr {}, i64 {})", address.text, bytes.text);
        self.b.effect(&[&address, &bytes], &text);
        Ok(())
    }

    fn multiply_tiles(&mut self, acc: i64, left: i64, right: i64) {
        self.b.effect(&[], &format!("call void @llvm.x86.tdpbf16ps(i8 {acc}, i8 {left}, i8 {right})"));
    }

    /// Runs `body` in all of `loops`.
    fn sum_tiles(
        &mut self,
        loops: &[Axis],
        body: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        match loops.split_first() {
            None => body(self),
            Some((&Axis { var, extent }, inner)) => {
                self.repeat(var, extent, &mut |cx| cx.sum_tiles(inner, body))
            }
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
