//! Splits long scans for GPUs: runs that a thread each scans at the same time, and what comes before each run.
//!
//! A scan is one chain. A row whose elements lie side by side becomes runs of 16. What runs have together, each moved one run on, is scanned
//! the same way until there is one run alone, and what a point has is combined of a result of each level:
//!
//! ```text
//! values [e in 2048]            v[e / 16, e % 16] = x[e]
//! runs   [b in 128, c in 16]    r[b, c] = scan over c of v[b, c]
//! ends   [e in 128]             w[e / 16, e % 16] = r[e - 1, 15], or nothing for the first run
//! runs2  [b in 8, c in 16]      s[b, c] = scan over c of w[b, c]
//! runs3  [c in 8]               t[c] = scan over c of s[c - 1, 15]
//! before [e in 128]             u[e] = t[e / 16] + s[e / 16, e % 16]
//! scan   [e in 2048]            y[e] = u[e / 16] + r[e / 16, e % 16]
//! ```
//!
//! The ends of runs are moved together, as threads that scan them would find them in the same bank of shared memory, and what is before a run is
//! combined once for all of its points: what a block loads and stores there is what takes its time.
//!
//! All of this is a kernel of a block's threads, which pass the runs on in the memory that they share. A longer row is cut into tiles of at most
//! as many elements. What tiles have together is reduced first and scanned as a row of its own, and a tile begins with what is before it; of few
//! elements each tile reduces that by itself. Columns side by side, where they are too few for all threads, are cut into as many tiles as it
//! takes, each scanned by one thread.
//!
//! How what is scanned is combined depends on sizes and on the target alone. Products of floats keep their order: where those of a run
//! overflow, what is zero before it would become NaN. A row of them that is one tile is one run, and others stay as they are.

use super::split_reduce::{add_buf, block_length, element, load, push};
use super::{Cx, Edits, Names, cse, names};
use litz_analysis::access::accesses;
use litz_analysis::parts::need;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::{Gpu, Target};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel, Sym};

/// Elements of a row that threads of a block scan together, at most: 128 runs, of which 17 KiB of f64 are in shared memory.
const TILE: i64 = 2048;
/// Elements of a run, which a thread scans; and of one of a row of at most so many, so that there are as many runs.
const RUN: i64 = 16;
const SHORT_RUN: i64 = 8;
const SHORT: i64 = 128;
/// Elements of a row that are worth the meetings of threads; where there are fewer rows than threads, and else.
const LEAST_ROW: i64 = 32;
const LEAST_OF_MANY: i64 = 128;
/// Elements of a column that a thread scans, at least.
const LEAST_COLUMN: i64 = 32;
/// Elements of a column that are worth two more launches.
const LEAST_OF_COLUMNS: i64 = 256;
/// Tiles of a row, at most, that each reduce what is before them: the loads of all are few beside those of the row.
const FEW_TILES: i64 = 1024;
/// Elements of a row, at most, of which each tile reduces by itself what is before it, where all tiles run at a time: that takes no longer than the
/// launches of two kernels that share what they reduce.
const AGAIN: i64 = 8192;
/// Threads of a unit that hide what each waits for.
const THREADS: i64 = 256;

/// Whether a target has threads that scan a row together.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Splits scans; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let gpu = cx.target.gpu().expect("invariant: no other target wants scans in runs");
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let (nest, mut done) = (nest.clone(), Vec::new());
        count += divide(loops, nest, gpu, &mut names, &mut done);
        if done.len() > 1 {
            done.into_iter().for_each(|nest| edits.insert(at, Stmt::Nest(nest)));
            edits.remove(at);
        }
    }
    edits.apply(loops);
    count
}

/// Adds a nest to those that are `done`, or the nests that it becomes; returns how many scans were split.
fn divide(loops: &mut Loops, nest: Nest, gpu: &Gpu, names: &mut Names, done: &mut Vec<Nest>) -> usize {
    let Some(Division { before, runs, rest }) = split(loops, &nest, gpu, names) else {
        done.push(nest);
        return 0;
    };
    let mut count = 1;
    for nest in before {
        count += divide(loops, nest, gpu, names, done);
    }
    done.extend(runs);
    for nest in rest {
        count += divide(loops, nest, gpu, names, done);
    }
    count
}

/// What a nest that scans becomes.
struct Division {
    /// What is before each tile, which may be divided further.
    before: Vec<Nest>,
    /// The runs of tiles.
    runs: Vec<Nest>,
    /// What each point has, which may be divided further.
    rest: Vec<Nest>,
}

/// A scan of a nest.
struct Scan {
    /// Where in the body it is.
    at: usize,
    op: ReduceOp,
    /// What is scanned.
    value: Val,
    ty: Dtype,
    axis: Axis,
    /// What several elements have together may be combined with what is before them.
    is_associative: bool,
    /// Where in the body its result is as it is used: it, or the one conversion of it.
    result: usize,
}

/// How a scan is divided.
struct Shape {
    /// Whether threads scan a tile together. Otherwise one does.
    is_shared: bool,
    /// Points of a tile.
    length: i64,
    /// How many tiles there are, if not one.
    tiles: Option<Expr>,
}

/// The first scan of a nest, where it may be divided.
fn first_scan(nest: &Nest) -> Option<Scan> {
    let mut insts = nest.body.iter().enumerate();
    let (at, op, value, axis) = insts.find_map(|(at, inst)| {
        if let InstOp::Scan { op, value, axis } = inst.op { Some((at, op, value, axis)) } else { None }
    })?;
    let ty = nest.body[at].ty;
    let is_associative = op != ReduceOp::Prod || !ty.is_float();
    let stores_to_own = || accesses(nest).any(|load| !load.store && nest.writes().contains(&load.buf));
    if nest.reduces() || !nest.reduced.is_empty() || nest.idle.is_some() || ty.compute() != ty {
        return None;
    }
    let axis = *nest.axes.iter().find(|own| own.var == axis).filter(|_| !stores_to_own())?;
    let used_by = |inst: &Inst| inst.op.operands().contains(&Val::new(at));
    let mut users = (0..nest.body.len()).filter(|&i| used_by(&nest.body[i]));
    let result = match (users.next(), users.next()) {
        (Some(user), None) if matches!(nest.body[user].op, InstOp::Cast(_)) => user,
        _ => at,
    };
    Some(Scan { at, op, value, ty, axis, is_associative, result })
}

/// How a scan is divided, where that pays.
fn shape(loops: &Loops, nest: &Nest, scan: &Scan, gpu: &Gpu) -> Option<Shape> {
    let facts = &loops.facts;
    let hint = |e: Expr| facts.size_hint(e).max(1);
    let extent = scan.axis.extent;
    let most = facts.bounds(extent).hi;
    let points = hint(extent).min(most);
    let others = rows(nest, scan);
    let rows = others.iter().map(|axis| hint(axis.extent)).fold(1, i64::saturating_mul);
    let threads = i64::from(gpu.units) * THREADS;
    let is_beside = |axis: &Axis| {
        let mut stores = accesses(nest).filter(|access| access.store);
        let step = |place: Expr| place.linear(axis.var).and_then(|(step, _)| step.as_int());
        stores.any(|store| step(store.place(loops, nest)) == Some(1))
    };
    let has_columns = !is_beside(&scan.axis)
        && others.iter().any(|axis| hint(axis.extent) >= i64::from(Gpu::LANES) / 2 && is_beside(axis));
    if has_columns {
        if points < LEAST_OF_COLUMNS || !scan.is_associative {
            return None;
        }
        let tiles = (threads / rows).min(points / LEAST_COLUMN);
        let length = block_length(extent, points, tiles);
        let tiles = (tiles >= 2).then(|| facts.simplify(extent.ceildiv(length)))?;
        return Some(Shape { is_shared: false, length, tiles: Some(tiles) });
    }
    let is_worth_it = points >= LEAST_OF_MANY && scan.is_associative || rows < threads;
    if points < LEAST_ROW || !is_worth_it {
        return None;
    }
    if most <= TILE {
        return Some(Shape { is_shared: true, length: most, tiles: None });
    }
    if !scan.is_associative {
        return None;
    }
    // A length that leaves no remainder saves a copy.
    let whole = (TILE / 2 / RUN..=TILE / RUN)
        .rev()
        .map(|runs| runs * RUN)
        .find(|&length| facts.divides(length, extent));
    let length = whole.unwrap_or(TILE);
    Some(Shape { is_shared: true, length, tiles: Some(facts.simplify(extent.ceildiv(length))) })
}

/// The axes of a nest along which each point has a scan of its own.
fn rows(nest: &Nest, scan: &Scan) -> Vec<Axis> {
    nest.axes.iter().filter(|axis| axis.var != scan.axis.var).copied().collect()
}

/// The nests that replace one that scans, where dividing its first scan pays.
fn split(loops: &mut Loops, nest: &Nest, gpu: &Gpu, names: &mut Names) -> Option<Division> {
    let scan = first_scan(nest)?;
    let Shape { is_shared, length, tiles } = shape(loops, nest, &scan, gpu)?;
    let [tile, inside] = ["o", "i"]
        .map(|part| names::symbol(&format!("{}_{part}", scan.axis.var), &loops.facts, nest.all_axes()));
    let inside = Axis { var: inside, extent: Expr::int(length) };
    let Some(tiles) = tiles else {
        let (runs, levels) = levels(loops, nest, &scan, (rows(nest, &scan), inside, None), names)?;
        let at = Expr::sym(scan.axis.var);
        let rest = rest(loops, nest, &scan, None, &mut |body, _| levels.combined(body, &scan, at));
        return Some(Division { before: Vec::new(), runs, rest: vec![rest] });
    };
    let tile = Axis { var: tile, extent: tiles };
    let (outer, of_tile): (Vec<Axis>, Vec<Axis>) = match is_shared {
        true => (rows(nest, &scan).into_iter().chain([tile]).collect(), Vec::new()),
        false => (within(nest, &scan, &[tile]), within(nest, &scan, &[tile, inside])),
    };
    let at = Expr::sym(tile.var) * length + Expr::sym(inside.var);

    let base = add_buf(loops, names, nest, "base", scan.ty, &outer);
    let at_once = match is_shared {
        true => again(loops, nest, &scan, (&outer, tile, length), base, (gpu, names)),
        false => None,
    };
    let before = match at_once {
        Some(bases) => vec![bases],
        None => {
            let reduced = values(loops, nest, &scan, (outer.clone(), vec![inside], at), names, "part")?;
            let part = add_buf(loops, names, nest, "part", scan.ty, &outer);
            let parts = reduce(reduced, &scan, part, &outer);
            vec![parts, bases(loops, nest, &scan, (&outer, tile), [part, base], (names, is_shared))]
        }
    };

    // What each point of a tile has of its own.
    let (runs, own) = match is_shared {
        true => {
            let (runs, levels) = levels(loops, nest, &scan, (outer.clone(), inside, Some(at)), names)?;
            (runs, Some(levels))
        }
        false => (Vec::new(), None),
    };
    let index = element(&outer);
    let mut combined = |body: &mut Vec<Inst>, value: Val| {
        let own = match &own {
            Some(levels) => levels.combined(body, &scan, Expr::sym(inside.var)),
            None => push(body, InstOp::Scan { op: scan.op, value, axis: inside.var }, scan.ty),
        };
        let base = push(body, load(base, index.clone(), scan.ty), scan.ty);
        push(body, InstOp::Op(scan.op.combine(), vec![base, own]), scan.ty)
    };
    let points = if is_shared { outer.iter().copied().chain([inside]).collect() } else { of_tile };
    let is_only = nest.scanned().count() == 1;
    if is_only && loops.facts.divides(length, scan.axis.extent) {
        let points = within(nest, &scan, &[tile, inside]);
        let rest = rest(loops, nest, &scan, Some((points, at)), &mut combined);
        return Some(Division { before, runs, rest: vec![rest] });
    }
    // The last tile goes past the end of the row: what is left of the nest goes over the row alone.
    let mut whole = match is_shared {
        true => empty(nest, names, "whole", points.clone()),
        false => values(loops, nest, &scan, (points.clone(), Vec::new(), at), names, "whole")?,
    };
    let value = Val::new(whole.body.len().saturating_sub(1));
    let all = combined(&mut whole.body, value);
    let all = converted(&mut whole.body, nest, &scan, all);
    let ty = nest.body[scan.result].ty;
    let buf = add_buf(loops, names, nest, "whole", ty, &points);
    store(&mut whole.body, buf, element(&points), all, ty);
    cse::clean(&mut whole);
    let along = Expr::sym(scan.axis.var);
    let place = |axis: &Axis| match axis.var {
        var if var == tile.var => along.floordiv(length),
        var if var == inside.var => along.modulo(length),
        var => Expr::sym(var),
    };
    let index: Vec<Expr> = points.iter().map(place).collect();
    let rest = rest_of(loops, nest, &scan, None, &mut |body, _| push(body, load(buf, index.clone(), ty), ty));
    Some(Division { before, runs, rest: vec![whole, rest] })
}

/// What is before each tile of so many points, which each reduces by itself. None where that is too much.
fn again(
    loops: &Loops,
    nest: &Nest,
    scan: &Scan,
    (outer, tile, length): (&[Axis], Axis, i64),
    base: Buf,
    (gpu, names): (&Gpu, &mut Names),
) -> Option<Nest> {
    let tiles = outer.iter().map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul);
    if loops.facts.bounds(scan.axis.extent).hi > AGAIN || tiles > i64::from(gpu.units) {
        return None;
    }
    let axes = nest.all_axes().chain(outer);
    let before = Axis { var: names::symbol("before", &loops.facts, axes), extent: scan.axis.extent };
    let at = Expr::sym(before.var);
    let mut own = values(loops, nest, scan, (outer.to_vec(), vec![before], at), names, "base")?;
    let value = Val::new(own.body.len() - 1);
    let is_before = InstOp::Cond(Rel::lt(at, Expr::sym(tile.var) * length));
    let is_before = push(&mut own.body, is_before, Dtype::Bool);
    let nothing = push(&mut own.body, InstOp::Const(scan.op.identity(scan.ty)), scan.ty);
    push(&mut own.body, InstOp::Op(ScalarOp::Select, vec![is_before, value, nothing]), scan.ty);
    Some(reduce(own, scan, base, outer))
}

/// A nest that stores what all of its last values are together.
fn reduce(mut own: Nest, scan: &Scan, buf: Buf, outer: &[Axis]) -> Nest {
    let value = Val::new(own.body.len() - 1);
    let together = push(&mut own.body, InstOp::Reduce(scan.op, value), scan.ty);
    store(&mut own.body, buf, element(outer), together, scan.ty);
    cse::clean(&mut own);
    own
}

/// What is before each tile: few tiles each reduce what is before them, which is done at once; of many it is a scan.
fn bases(
    loops: &Loops,
    nest: &Nest,
    scan: &Scan,
    (outer, tile): (&[Axis], Axis),
    [part, base]: [Buf; 2],
    (names, is_row): (&mut Names, bool),
) -> Nest {
    let mut own = empty(nest, names, "base", outer.to_vec());
    let before = Axis { var: names::symbol("before", &loops.facts, outer.iter()), extent: tile.extent };
    let is_few = is_row && loops.facts.size_hint(tile.extent) <= FEW_TILES;
    let (place, is_there) = match is_few {
        true => (Expr::sym(before.var), Rel::lt(Expr::sym(before.var), Expr::sym(tile.var))),
        false => (Expr::sym(tile.var) - 1, Rel::le(1, Expr::sym(tile.var))),
    };
    let index =
        outer.iter().map(|axis| if axis.var == tile.var { place } else { Expr::sym(axis.var) }).collect();
    let other = scan.op.identity(scan.ty);
    let value = push(&mut own.body, InstOp::Load { buf: part, index, guard: vec![is_there], other }, scan.ty);
    let together = match is_few {
        true => {
            own.reduced.push(before);
            InstOp::Reduce(scan.op, value)
        }
        false => InstOp::Scan { op: scan.op, value, axis: tile.var },
    };
    let together = push(&mut own.body, together, scan.ty);
    store(&mut own.body, base, element(outer), together, scan.ty);
    own
}

/// The axes of a nest with others in the place of the one that is scanned.
fn within(nest: &Nest, scan: &Scan, others: &[Axis]) -> Vec<Axis> {
    let place = |axis: &Axis| if axis.var == scan.axis.var { others.to_vec() } else { vec![*axis] };
    nest.axes.iter().flat_map(place).collect()
}

/// What runs of a level have, at each of their points.
struct Level {
    buf: Buf,
    /// Points of the row that are one of the level's.
    unit: i64,
    /// Points of a run, and of all runs.
    run: i64,
    points: i64,
    /// It has several runs.
    is_several: bool,
}

/// Results of runs, level by level.
struct Levels {
    /// Points that share them.
    outer: Vec<Axis>,
    /// First the lowest.
    all: Vec<Level>,
    /// What is before each run of the lowest, where several levels say so.
    before: Option<Buf>,
}

impl Levels {
    /// What the point at `at` of a row has.
    fn combined(&self, body: &mut Vec<Inst>, scan: &Scan, at: Expr) -> Val {
        let (lowest, others) = self.all.split_first().expect("invariant: there is a level");
        let own = self.of_level(body, scan, lowest, at);
        match self.before {
            Some(buf) => {
                let index = element(&self.outer).into_iter().chain([at.floordiv(lowest.run)]).collect();
                let before = push(body, load(buf, index, scan.ty), scan.ty);
                push(body, InstOp::Op(scan.op.combine(), vec![before, own]), scan.ty)
            }
            None => self.with(body, scan, own, (others, at)),
        }
    }

    /// A value of the point at `at` with what some levels have before it.
    fn with(&self, body: &mut Vec<Inst>, scan: &Scan, own: Val, (levels, at): (&[Level], Expr)) -> Val {
        levels.iter().fold(own, |own, level| {
            let before = self.of_level(body, scan, level, at);
            push(body, InstOp::Op(scan.op.combine(), vec![before, own]), scan.ty)
        })
    }

    fn of_level(&self, body: &mut Vec<Inst>, scan: &Scan, level: &Level, at: Expr) -> Val {
        let &Level { buf, unit, run, is_several, .. } = level;
        let (mut index, point) = (element(&self.outer), at.floordiv(unit));
        index.extend(match is_several {
            true => [at.floordiv(unit * run), point.modulo(run)],
            false => [Expr::zero(), point],
        });
        push(body, load(buf, index, scan.ty), scan.ty)
    }
}

/// Scans the runs of rows that the points of `outer` have, of so many points of `inside` each, which are those at `at` along the axis.
fn levels(
    loops: &mut Loops,
    nest: &Nest,
    scan: &Scan,
    (outer, inside, at): (Vec<Axis>, Axis, Option<Expr>),
    names: &mut Names,
) -> Option<(Vec<Nest>, Levels)> {
    let [run_of, point_of] = ["b", "c"].map(|part| {
        let axes = nest.all_axes().chain(&outer).chain([&inside]);
        names::symbol(&format!("{}_{part}", scan.axis.var), &loops.facts, axes)
    });
    let length = inside.extent.as_int()?;
    let mut run = match scan.is_associative {
        true if length > SHORT => RUN,
        true => SHORT_RUN,
        false => length,
    };
    let mut count = (length + run - 1) / run;

    // All points of whole runs, side by side.
    let along = Axis { extent: Expr::int(count * run), ..inside };
    let at = at.unwrap_or(Expr::sym(inside.var));
    let axes: Vec<Axis> = outer.iter().copied().chain([along]).collect();
    let mut first = values(loops, nest, scan, (axes, Vec::new(), at), names, "values")?;
    // A number that is exact in a smaller type is converted by who scans.
    let mut value = Val::new(first.body.len() - 1);
    if let InstOp::Cast(from) = first.body[value.index()].op {
        let narrow = first.body[from.index()].ty;
        if narrow.size() < scan.ty.size() && narrow.compute() == narrow {
            value = from;
        }
    }
    let ty = first.body[value.index()].ty;
    let runs = |count: i64, run: i64| {
        [Axis { var: run_of, extent: Expr::int(count) }, Axis { var: point_of, extent: Expr::int(run) }]
    };
    let dims = |own: [Axis; 2]| outer.iter().copied().chain(own).collect::<Vec<Axis>>();
    let place = |at: [Expr; 2]| element(&outer).into_iter().chain(at).collect::<Vec<Expr>>();
    let mut from = add_buf(loops, names, nest, "values", ty, &dims(runs(count, run)));
    let e = Expr::sym(inside.var);
    store(&mut first.body, from, place([e.floordiv(run), e.modulo(run)]), value, ty);
    cse::clean(&mut first);

    let (mut nests, mut all) = (vec![first], Vec::new());
    let (mut unit, mut before) = (1, None);
    loop {
        let [by, point] = runs(count, run);
        // An axis of one point is none.
        let number = if count == 1 { Expr::zero() } else { Expr::sym(by.var) };
        let axes: Vec<Axis> = outer.iter().copied().chain((count > 1).then_some(by)).chain([point]).collect();
        let mut own = empty(nest, names, "runs", axes);
        let point = Expr::sym(point.var);
        let value = match before {
            None => {
                let value = push(&mut own.body, load(from, place([number, point]), ty), ty);
                if ty == scan.ty { value } else { push(&mut own.body, InstOp::Cast(value), scan.ty) }
            }
            Some(before) if count == 1 => {
                let end = end(scan, from, before, &place, (number * run + point, count * run));
                push(&mut own.body, end, scan.ty)
            }
            Some(before) => {
                let along = Axis { extent: Expr::int(count * run), ..inside };
                let axes = outer.iter().copied().chain([along]).collect();
                let mut ends = empty(nest, names, "ends", axes);
                let end = end(scan, from, before, &place, (e, count * run));
                let value = push(&mut ends.body, end, scan.ty);
                let buf = add_buf(loops, names, nest, "ends", scan.ty, &dims(runs(count, run)));
                store(&mut ends.body, buf, place([e.floordiv(run), e.modulo(run)]), value, scan.ty);
                nests.push(ends);
                push(&mut own.body, load(buf, place([number, point]), scan.ty), scan.ty)
            }
        };
        let scanned = InstOp::Scan { op: scan.op, value, axis: point_of };
        let scanned = push(&mut own.body, scanned, scan.ty);
        let buf = add_buf(loops, names, nest, "runs", scan.ty, &dims(runs(count, run)));
        store(&mut own.body, buf, place([number, point]), scanned, scan.ty);
        nests.push(own);
        all.push(Level { buf, unit, run, points: count * run, is_several: count > 1 });
        if count == 1 {
            let mut levels = Levels { outer, all, before: None };
            nests.extend(before_runs(loops, nest, scan, &mut levels, (names, inside)));
            return Some((nests, levels));
        }
        (from, before, unit) = (buf, Some((count, run)), unit * run);
        run = count.min(RUN);
        count = (count + run - 1) / run;
    }
}

/// What the runs of the level before have together, of which there are so many of so many points, moved one run on: at a point of `points`.
fn end(
    scan: &Scan,
    from: Buf,
    (runs, of_run): (i64, i64),
    place: &dyn Fn([Expr; 2]) -> Vec<Expr>,
    (at, points): (Expr, i64),
) -> InstOp {
    let mut guard = vec![Rel::le(1, at)];
    guard.extend((points > runs).then(|| Rel::lt(at, runs)));
    let index = place([at - 1, Expr::int(of_run - 1)]);
    InstOp::Load { buf: from, index, guard, other: scan.op.identity(scan.ty) }
}

/// Combines what is before each run, where it is of several levels.
fn before_runs(
    loops: &mut Loops,
    nest: &Nest,
    scan: &Scan,
    levels: &mut Levels,
    (names, inside): (&mut Names, Axis),
) -> Option<Nest> {
    let [lowest, first, others @ ..] = &levels.all[..] else { return None };
    if others.is_empty() {
        return None;
    }
    let along = Axis { extent: Expr::int(first.points), ..inside };
    let axes: Vec<Axis> = levels.outer.iter().copied().chain([along]).collect();
    let mut own = empty(nest, names, "before", axes.clone());
    let at = Expr::sym(inside.var) * lowest.run;
    let value = levels.of_level(&mut own.body, scan, first, at);
    let value = levels.with(&mut own.body, scan, value, (others, at));
    let buf = add_buf(loops, names, nest, "before", scan.ty, &axes);
    store(&mut own.body, buf, element(&axes), value, scan.ty);
    levels.before = Some(buf);
    Some(own)
}

/// A nest like another one, over other axes and without a body.
fn empty(nest: &Nest, names: &mut Names, role: &str, axes: Vec<Axis>) -> Nest {
    let name = names.statement(&format!("{}_{role}", nest.name));
    Nest::new(name, nest.from.clone(), axes, Vec::new())
}

fn store(body: &mut Vec<Inst>, buf: Buf, index: Vec<Expr>, value: Val, ty: Dtype) {
    push(body, InstOp::Store { buf, index, value, combine: None }, ty);
}

/// The nest that computes, with its last instruction, what is scanned, at the point `at` along the axis. Points past the end have any
/// value. None where such points would be checked.
fn values(
    loops: &Loops,
    nest: &Nest,
    scan: &Scan,
    (axes, reduced, at): (Vec<Axis>, Vec<Axis>, Expr),
    names: &mut Names,
    role: &str,
) -> Option<Nest> {
    let last = scan.value.index();
    let mut needed = vec![false; nest.body.len()];
    needed[last] = true;
    for i in (0..=last).rev() {
        if needed[i] {
            need(nest, i, &nest.body[i].op.operands(), &mut needed);
        }
    }
    let mut own = empty(nest, names, role, axes);
    own.reduced = reduced;
    let facts = own.facts(&loops.facts);
    let exists = Rel::lt(at, scan.axis.extent);
    let is_whole = facts.holds(&exists);
    for (inst, needed) in nest.body[..=last].iter().zip(needed) {
        let mut inst = inst.clone();
        if !needed {
            // Keeps positions; swept out in the end.
            inst = Inst { op: InstOp::Const(Scalar::zero(inst.ty)), ty: inst.ty };
        }
        if matches!(inst.op, InstOp::Bind { .. }) && !is_whole {
            return None;
        }
        if let InstOp::Load { index, guard, other, .. } = &mut inst.op
            && !is_whole
            && index.iter().any(|e| e.has_sym(scan.axis.var))
        {
            if guard.is_empty() {
                *other = Scalar::zero(inst.ty);
            }
            guard.push(exists);
        }
        moved(&mut inst, scan.axis.var, at, &facts);
        own.body.push(inst);
    }
    Some(own)
}

/// What is left of a nest, over `points` if these are others, at `at` along the axis: `result` gives the scan's result, of which the value
/// that was scanned may be an operand.
fn rest(
    loops: &Loops,
    nest: &Nest,
    scan: &Scan,
    points: Option<(Vec<Axis>, Expr)>,
    result: &mut dyn FnMut(&mut Vec<Inst>, Val) -> Val,
) -> Nest {
    rest_of(loops, nest, scan, points, &mut |body, value| {
        let scanned = result(body, value);
        converted(body, nest, scan, scanned)
    })
}

/// As [`rest`]; `result` gives what is used of the scan's result.
fn rest_of(
    loops: &Loops,
    nest: &Nest,
    scan: &Scan,
    points: Option<(Vec<Axis>, Expr)>,
    result: &mut dyn FnMut(&mut Vec<Inst>, Val) -> Val,
) -> Nest {
    let mut own = Nest { body: Vec::new(), ..nest.clone() };
    if let Some((axes, _)) = &points {
        own.axes.clone_from(axes);
    }
    let facts = own.facts(&loops.facts);
    let mut map: Vec<Val> = Vec::with_capacity(nest.body.len());
    for (i, inst) in nest.body.iter().enumerate() {
        let val = if i == scan.result {
            result(&mut own.body, map[scan.value.index()])
        } else if i == scan.at {
            // What it is converted to has its place.
            map[scan.value.index()]
        } else {
            let mut inst = inst.clone();
            inst.op.operands_mut().into_iter().for_each(|val| *val = map[val.index()]);
            if let Some((_, at)) = &points {
                moved(&mut inst, scan.axis.var, *at, &facts);
            }
            push(&mut own.body, inst.op, inst.ty)
        };
        map.push(val);
    }
    cse::clean(&mut own);
    own
}

/// The result of a scan as it is used.
fn converted(body: &mut Vec<Inst>, nest: &Nest, scan: &Scan, scanned: Val) -> Val {
    match scan.result == scan.at {
        true => scanned,
        false => push(body, InstOp::Cast(scanned), nest.body[scan.result].ty),
    }
}

/// Puts another value in the place of an axis.
fn moved(inst: &mut Inst, axis: Sym, at: Expr, facts: &litz_sym::Facts) {
    inst.op.map_exprs(&mut |e| match e.has_sym(axis) {
        true => facts.simplify(e.replace(axis, at)),
        false => e,
    });
}
