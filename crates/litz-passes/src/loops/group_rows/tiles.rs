//! Writes the nests of a product by tiles of rows.

use super::super::split_reduce::{add_buf, element, load, push};
use super::super::{Names, cse, names};
use super::Grouped;
use super::shared::{Tables, computed};
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, BindOf, Buf, Inst, InstOp, Loops, Nest, Val};
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

/// A product by tiles.
pub struct Tiled {
    /// The nests that compute it.
    pub nests: Vec<Nest>,
    /// The tables of its tiles.
    pub tables: Tables,
    /// How many tiles there are, and rows of a tile.
    pub sizes: [Expr; 2],
    /// The rows of all tiles, and their products.
    pub rows: Buf,
    pub product: Buf,
}

/// What computes by tiles what `nest` computes row by row, with the tables and the rows of tiles that are given, if there are: the rows with the axes
/// of one row.
pub fn tiled(
    grouped: &Grouped,
    (loops, nest): (&mut Loops, &Nest),
    tables: Option<Tables>,
    rows_in_tiles: Option<(Buf, Vec<Axis>)>,
    names: &mut Names,
) -> Tiled {
    let (rows, count, height) = (grouped.row.extent, grouped.choice.count, Expr::int(grouped.height));
    let facts = &loops.facts;
    let choice = [Axis { var: grouped.choice.sym, extent: count }];
    let axis = |name: &str, extent: Expr| {
        let taken = nest.all_axes().chain(&choice);
        Axis { var: names::symbol(name, facts, taken), extent: facts.simplify(extent) }
    };
    let tile = axis("tile", (rows.floordiv(height) + count).min(rows));
    let (inside, group, end) = (axis("inside", height), axis("group", count), axis("end", count + 1));
    let mut writer = Writer { grouped, nest, loops, names, nests: Vec::new(), tile, inside, group, end };
    let tables = tables.unwrap_or_else(|| writer.tables());
    let rows = match rows_in_tiles {
        Some((buf, own)) => (buf, [&[tile, inside], &own[..]].concat()),
        None => writer.rows(tables.first),
    };
    let matrices = writer.matrices(tables.of);
    let own = rows.0;
    let product = writer.product(rows, matrices);
    writer.result(tables, product);
    Tiled { nests: writer.nests, tables, sizes: [tile.extent, inside.extent], rows: own, product }
}

/// What an operand is in, and its axes.
type Gathered = (Buf, Vec<Axis>);

struct Writer<'a> {
    grouped: &'a Grouped,
    nest: &'a Nest,
    loops: &'a mut Loops,
    names: &'a mut Names,
    nests: Vec<Nest>,
    /// Tiles, rows of a tile, groups, and groups and what is behind them.
    tile: Axis,
    inside: Axis,
    group: Axis,
    end: Axis,
}

impl Writer<'_> {
    fn tables(&mut self) -> Tables {
        let starts = self.starts();
        let tiles = self.tiles(starts);
        let of = self.groups(tiles);
        let first = self.first_rows([starts, tiles, of]);
        Tables { starts, tiles, of, first }
    }

    /// The first row of each group, and the number of all.
    fn starts(&mut self) -> Buf {
        let mut body = Body { insts: computed(self.nest, self.grouped.choice.value) };
        let own = Val::new(body.insts.len() - 1);
        let end = body.index(Expr::sym(self.end.var));
        let is_before = body.op(ScalarOp::Lt, &[own, end], Dtype::Bool);
        let count = body.count(is_before);
        self.store("starts", (vec![self.end], vec![self.grouped.row]), body, count)
    }

    /// The number of tiles before each group, and that of all.
    fn tiles(&mut self, starts: Buf) -> Buf {
        let (mut body, group) = (Body::default(), Expr::sym(self.group.var));
        let [start, end] = [group, group + 1].map(|at| body.load(starts, at));
        let rows = body.op(ScalarOp::Sub, &[end, start], Dtype::I64);
        let more = body.index(Expr::int(self.grouped.height - 1));
        let rows = body.op(ScalarOp::Add, &[rows, more], Dtype::I64);
        let height = body.index(Expr::int(self.grouped.height));
        let tiles = body.op(ScalarOp::FloorDiv, &[rows, height], Dtype::I64);
        let is_before = body.push(InstOp::Cond(Rel::lt(group, Expr::sym(self.end.var))), Dtype::Bool);
        let none = body.index(Expr::zero());
        let tiles = body.op(ScalarOp::Select, &[is_before, tiles, none], Dtype::I64);
        let sum = body.push(InstOp::Reduce(ReduceOp::Sum, tiles), Dtype::I64);
        self.store("tiles", (vec![self.end], vec![self.group]), body, sum)
    }

    /// The group of each tile: the last one of those behind all that have rows.
    fn groups(&mut self, tiles: Buf) -> Buf {
        let mut body = Body::default();
        let end = body.load(tiles, Expr::sym(self.group.var) + 1);
        let number = body.index(Expr::sym(self.tile.var));
        let is_past = body.op(ScalarOp::Le, &[end, number], Dtype::Bool);
        let count = body.count(is_past);
        let last = body.index(self.group.extent - 1);
        let own = body.op(ScalarOp::Min, &[count, last], Dtype::I64);
        self.store("of", (vec![self.tile], vec![self.group]), body, own)
    }

    /// The first row of each tile.
    fn first_rows(&mut self, [starts, tiles, of]: [Buf; 3]) -> Buf {
        let (mut body, tile) = (Body::default(), Expr::sym(self.tile.var));
        let own = body.load(of, tile);
        let own = body.bind(self.group.var, own, self.group.extent);
        let [start, before] = [starts, tiles].map(|buf| body.load(buf, own));
        let number = body.index(tile);
        let number = body.op(ScalarOp::Sub, &[number, before], Dtype::I64);
        let height = body.index(Expr::int(self.grouped.height));
        let distance = body.op(ScalarOp::Mul, &[number, height], Dtype::I64);
        let first = body.op(ScalarOp::Add, &[start, distance], Dtype::I64);
        self.store("first", (vec![self.tile], Vec::new()), body, first)
    }

    /// The rows of each tile. Those past the last one of all are that one.
    fn rows(&mut self, first: Buf) -> Gathered {
        let (mut body, row) = (Body::default(), self.grouped.row);
        let first = body.load(first, Expr::sym(self.tile.var));
        let inside = body.index(Expr::sym(self.inside.var));
        let number = body.op(ScalarOp::Add, &[first, inside], Dtype::I64);
        let last = body.index(row.extent - 1);
        let number = body.op(ScalarOp::Min, &[number, last], Dtype::I64);
        body.bind(row.var, number, row.extent);
        self.gathered("rows", 0, &[self.tile, self.inside], body)
    }

    /// The matrix of each tile.
    fn matrices(&mut self, of: Buf) -> Gathered {
        let (mut body, choice) = (Body::default(), &self.grouped.choice);
        let own = body.load(of, Expr::sym(self.tile.var));
        body.bind(choice.sym, own, choice.count);
        self.gathered("matrices", 1, &[self.tile], body)
    }

    /// An operand as its load loads it, with the symbols that `body` binds: these axes come first, then those of its own, as they are in memory.
    fn gathered(&mut self, role: &str, operand: usize, axes: &[Axis], mut body: Body) -> Gathered {
        let op = &self.nest.body[self.grouped.operands[operand]].op;
        let exprs = op.exprs();
        let place = |axis: &Axis| exprs.iter().position(|e| e.has_sym(axis.var));
        let columns = if operand == 1 { &self.grouped.columns[..] } else { &[] };
        let own = columns.iter().chain(&self.nest.reduced);
        let mut own: Vec<Axis> = own.filter(|axis| place(axis).is_some()).copied().collect();
        own.sort_by_key(place);
        let axes = [axes, &own].concat();
        let dtype = op.element().map_or(Dtype::I64, |(buf, _)| self.loops.bufs[buf].dtype);
        let value = body.push(op.clone(), dtype);
        (self.store(role, (axes.clone(), Vec::new()), body, value), axes)
    }

    /// The products of all tiles: in the type of the result, where what is behind chooses and rounds alone.
    fn product(&mut self, rows: Gathered, matrices: Gathered) -> Buf {
        let (nest, sum) = (self.nest, self.grouped.sum);
        let (mut body, mut map, varies) = (Body::default(), HashMap::new(), nest.varying());
        for at in (0..=sum).filter(|&at| varies[at] || at == sum) {
            let operand = self.grouped.operands.iter().position(|&load| load == at);
            let Some((buf, axes)) = operand.map(|operand| [&rows, &matrices][operand]) else {
                body.again(nest, at, &mut map);
                continue;
            };
            let ty = nest.body[at].ty;
            map.insert(Val::new(at), body.push(load(*buf, element(axes), ty), ty));
        }
        let value = map[&Val::new(sum)];
        let value = match result_type(nest, sum) {
            ty if ty == nest.body[sum].ty => value,
            ty => body.push(InstOp::Cast(value), ty),
        };
        let axes = [&[self.tile, self.inside], &self.grouped.columns[..]].concat();
        self.store("by_tiles", (axes, nest.reduced.clone()), body, value)
    }

    /// The nest with each row's sums as tiles have them.
    fn result(&mut self, Tables { starts, tiles, .. }: Tables, product: Buf) {
        let (nest, choice) = (self.nest, Expr::sym(self.grouped.choice.sym));
        let (mut body, mut map, varies) = (Body::default(), HashMap::new(), nest.varying());
        for at in (0..nest.body.len()).filter(|&at| !varies[at]) {
            if at != self.grouped.sum {
                body.again(nest, at, &mut map);
                continue;
            }
            let start = body.load(starts, choice);
            let row = body.index(Expr::sym(self.grouped.row.var));
            let place = body.op(ScalarOp::Sub, &[row, start], Dtype::I64);
            let place = body.bind(self.inside.var, place, self.grouped.row.extent);
            let before = body.load(tiles, choice);
            let number = body.index(place.floordiv(self.grouped.height));
            let number = body.op(ScalarOp::Add, &[before, number], Dtype::I64);
            let number = body.bind(self.tile.var, number, self.tile.extent);
            let of_row = [number, place.modulo(self.grouped.height)];
            let index = [&of_row, &element(&self.grouped.columns)[..]].concat();
            let ty = nest.body[at].ty;
            map.insert(Val::new(at), body.push(load(product, index, ty), ty));
        }
        let mut last = Nest { reduced: Vec::new(), body: body.insts, ..nest.clone() };
        cse::clean(&mut last);
        self.nests.push(last);
    }

    /// Appends the nest over these axes, the second of them reduced, that stores a value.
    fn store(&mut self, role: &str, (axes, reduced): (Vec<Axis>, Vec<Axis>), body: Body, value: Val) -> Buf {
        let mut body = body.insts;
        let ty = body[value.index()].ty;
        let buf = add_buf(self.loops, self.names, self.nest, role, ty, &axes);
        push(&mut body, InstOp::Store { buf, index: element(&axes), value, combine: None }, ty);
        let name = self.names.statement(&format!("{}_{role}", self.nest.name));
        let mut made = Nest {
            name,
            from: self.nest.from.clone(),
            axes,
            reduced,
            idle: None,
            rounds: self.nest.rounds,
            body,
        };
        cse::clean(&mut made);
        self.nests.push(made);
        buf
    }
}

/// The type in which sums are stored without another rounding.
fn result_type(nest: &Nest, sum: usize) -> Dtype {
    exact_type(nest, sum).unwrap_or(nest.body[sum].ty)
}

/// The type in which a nest stores its sums, where it does nothing with them but choose and round them once.
pub fn exact_type(nest: &Nest, sum: usize) -> Option<Dtype> {
    let sums = nest.body[sum].ty;
    let is_exact = |inst: &Inst| {
        let InstOp::Store { combine, .. } = &inst.op else {
            let is_literal = matches!(inst.op, InstOp::Const(_));
            return is_literal || matches!(inst.op, InstOp::Op(ScalarOp::Select, _) | InstOp::Cast(_));
        };
        combine.is_none()
    };
    let behind = &nest.body[sum + 1..];
    let last = behind.last().filter(|_| behind.iter().all(is_exact))?;
    (last.ty.is_float() && last.ty.compute() == sums).then_some(last.ty)
}

/// Instructions that are appended in order.
#[derive(Default)]
struct Body {
    insts: Vec<Inst>,
}

impl Body {
    fn push(&mut self, op: InstOp, ty: Dtype) -> Val {
        push(&mut self.insts, op, ty)
    }

    fn index(&mut self, e: Expr) -> Val {
        self.push(InstOp::Index(e), Dtype::I64)
    }

    fn load(&mut self, buf: Buf, at: Expr) -> Val {
        self.push(load(buf, vec![at], Dtype::I64), Dtype::I64)
    }

    fn op(&mut self, op: ScalarOp, of: &[Val], ty: Dtype) -> Val {
        self.push(InstOp::Op(op, of.to_vec()), ty)
    }

    /// At how many points of the reduced axes something holds.
    fn count(&mut self, holds: Val) -> Val {
        let holds = self.push(InstOp::Cast(holds), Dtype::I64);
        self.push(InstOp::Reduce(ReduceOp::Sum, holds), Dtype::I64)
    }

    fn bind(&mut self, sym: Sym, value: Val, extent: Expr) -> Expr {
        self.push(InstOp::Bind { sym, value, extent, of: BindOf::Index }, Dtype::I64);
        Expr::sym(sym)
    }

    /// An instruction of a nest once more.
    fn again(&mut self, nest: &Nest, at: usize, map: &mut HashMap<Val, Val>) {
        let Inst { mut op, ty } = nest.body[at].clone();
        op.operands_mut().into_iter().for_each(|val| *val = map[val]);
        map.insert(Val::new(at), self.push(op, ty));
    }
}
