//! The loops pass `online`: attention by blocks of columns gives what attention by rows does.

mod common;

use common::{outputs, parse, run_as, verify};
use litz_ir::ids::Id;
use litz_ir::loops::{Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_passes::loops::{Inlining, online};

/// Attention of `rows` by `columns`, with instructions that change the score `%3`, giving `%9`.
fn attention(rows: &str, columns: &str, mask: &str, outputs: &str) -> String {
    format!(
        "
loops @p on cpu {{
  sym t in [1, 4096] hint 200
  buf q: f64[2, {rows}, 4] = input
  buf k: f64[2, {columns}, 4] = input
  buf v: f64[2, {columns}, 3] = input
  buf keep: f64[{rows}, {columns}] = input
  buf s: f64[2, {rows}, {columns}]
  buf m: f64[2, {rows}]
  buf e: f64[2, {rows}, {columns}]
  buf l: f64[2, {rows}]
  buf y: f64[2, {rows}, 3]
  nest score [h in 2, i in {rows}, j in {columns} | d in 4] {{
    %0: f64 = load q[h, i, d]
    %1: f64 = load k[h, j, d]
    %2: f64 = mul %0, %1
    %3: f64 = reduce.sum %2
    {mask}
    store s[h, i, j] = %9
  }}
  nest max [h in 2, i in {rows} | j in {columns}] {{
    %0: f64 = load s[h, i, j]
    %1: f64 = reduce.max %0
    %2: f64 = const -inf
    %3: f64 = const 0.0
    %4: bool = eq %1, %2
    %5: f64 = select %4, %3, %1
    store m[h, i] = %5
  }}
  nest exp [h in 2, i in {rows}, j in {columns}] {{
    %0: f64 = load s[h, i, j]
    %1: f64 = load m[h, i]
    %2: f64 = sub %0, %1
    %3: f64 = exp %2
    store e[h, i, j] = %3
  }}
  nest sum [h in 2, i in {rows} | j in {columns}] {{
    %0: f64 = load e[h, i, j]
    %1: f64 = reduce.sum %0
    %2: f64 = const 0.0
    %3: f64 = const 1.0
    %4: bool = eq %1, %2
    %5: f64 = select %4, %3, %1
    store l[h, i] = %5
  }}
  nest out [h in 2, i in {rows}, f in 3 | j in {columns}] {{
    %0: f64 = load e[h, i, j]
    %1: f64 = load v[h, j, f]
    %2: f64 = mul %0, %1
    %3: f64 = reduce.sum %2
    %4: f64 = load l[h, i]
    %5: f64 = div %3, %4
    store y[h, i, f] = %5
  }}
  return {outputs}
}}"
    )
}

/// The same with what follows the product in a nest of its own.
fn apart(attention: &str) -> String {
    let masks = "%3: f64 = reduce.sum %2
    store p[h, i, j] = %3
  }
  nest mask [h in 2, i in ROWS, j in COLUMNS] {
    %0: f64 = load p[h, i, j] %1: f64 = const 1.0 %2: f64 = mul %0, %1 %3: f64 = mul %2, %1";
    let sizes =
        attention.split_once("nest score [h in 2, i in ").and_then(|(_, rest)| rest.split_once(" | "));
    let (rows, columns) = sizes.and_then(|(sizes, _)| sizes.split_once(", j in ")).expect("rows and columns");
    let masks = masks.replace("ROWS", rows).replace("COLUMNS", columns);
    let buf = format!("buf p: f64[2, {rows}, {columns}]\n  buf m: f64[2, {rows}]");
    attention.replacen("%3: f64 = reduce.sum %2", &masks, 1).replacen(
        &format!("buf m: f64[2, {rows}]"),
        &buf,
        1,
    )
}

const SCALE: &str = "%4: f64 = const 0.25 %9: f64 = mul %3, %4";
const CAUSAL: &str = "%4: bool = cond j <= i %5: f64 = const -inf %9: f64 = select %4, %3, %5";
/// Keeps where a random integer is positive: first columns of some rows are all removed.
const MASK: &str = "%4: f64 = load keep[i, j] %5: f64 = const 2.0 %6: bool = lt %5, %4
    %7: f64 = const -inf %9: f64 = select %6, %3, %7";
/// Removes every column of odd rows, and all but the last ones of others.
const ROWS: &str = "%4: bool = cond 150 <= j %5: bool = cond 2*floordiv(i, 2) == i %6: bool = and %4, %5
    %7: f64 = const -inf %9: f64 = select %6, %3, %7";

fn rewritten(text: &str, near: i64) -> (Loops, usize) {
    let mut loops = parse(text);
    let count = run_as(online::run, &mut loops, near, &Inlining::default());
    verify(&loops);
    (loops, count)
}

#[test]
fn blocks_give_what_rows_give() {
    for (columns, mask) in [
        ("256", SCALE),
        ("192", CAUSAL),
        ("200", SCALE),
        ("200", CAUSAL),
        ("200", ROWS),
        ("t", CAUSAL),
        ("t", MASK),
    ] {
        let text = attention("18", columns, &mask.replace("{columns}", columns), "y");
        let (loops, count) = rewritten(&text, 1024);
        assert_eq!(count, 1, "{text}");
        assert!(loops.stmts.iter().any(|s| matches!(s, Stmt::Recurrence(_))), "{loops}");
        [1, 31, 32, 200].into_iter().for_each(|t| assert_same(&text, &loops, t));
    }
}

/// Compares what two programs compute of `t` columns.
fn assert_same(text: &str, loops: &Loops, t: i64) {
    let (expected, found) = (outputs(&parse(text), &[("t", t)]), outputs(loops, &[("t", t)]));
    for (expected, found) in expected.iter().flatten().zip(found.iter().flatten()) {
        let is_close = (expected - found).abs() <= 1e-12 * expected.abs().max(1.0);
        assert!(
            is_close || expected == found || expected.is_nan() && found.is_nan(),
            "{expected} {found}, t = {t} of\n{loops}"
        );
    }
}

#[test]
fn rows_that_fit_and_results_that_are_wanted_stay() {
    let text = attention("18", "200", SCALE, "y");
    assert_eq!(rewritten(&text, 1 << 20).1, 0, "rows that fit in the cache");
    assert_eq!(rewritten(&attention("2", "200", SCALE, "y"), 1024).1, 0, "few rows");
    for other in ["s", "e"] {
        assert_eq!(rewritten(&attention("18", "200", SCALE, &format!("y, {other}")), 1024).1, 0, "{other}");
    }
}

#[test]
fn maxima_and_sums_that_are_wanted_are_stored_in_the_end() {
    for mask in [CAUSAL, MASK, ROWS] {
        let text = attention("18", "t", mask, "y, m, l");
        let (loops, count) = rewritten(&text, 1024);
        assert_eq!(count, 1, "{text}");
        [1, 33, 200].into_iter().for_each(|t| assert_same(&text, &loops, t));
    }
}

/// A program of 18 rows of `t` columns, `x`.
fn rows(nests: &str) -> String {
    format!(
        "
loops @p on cpu {{
  sym t in [1, 10000] hint 9000
  buf x: f64[18, t] = input
  buf z: f64[18, t] = input
  buf m: f64[18]
  buf n: f64[18]
  buf e: f64[18, t]
  buf y: f64[18]
  buf w: f64[18, t]
  {nests}
}}"
    )
}

const LARGEST: &str = "nest max [i in 18 | j in t] {
    %0: f64 = load x[i, j]
    %1: f64 = reduce.max %0
    store m[i] = %1
  }";
const MEAN: &str = "nest mean [i in 18 | j in t] {
    %0: f64 = load x[i, j]
    %1: f64 = reduce.sum %0
    %2: i64 = index t
    %3: f64 = cast %2
    %4: f64 = div %1, %3
    store m[i] = %4
  }";

/// Rewrites a program of rows, which has to be possible, and compares results for several numbers of blocks.
fn assert_online(nests: &str) -> Loops {
    let text = rows(nests);
    let (loops, count) = rewritten(&text, 1024);
    assert_eq!(count, 1, "{text}");
    [1, 4095, 4096, 9000].into_iter().for_each(|t| assert_same(&text, &loops, t));
    loops
}

#[test]
fn sums_of_exponentials() {
    let sum = |term: &str, tail: &str| {
        format!(
            "nest sum [i in 18 | j in t] {{
               %0: f64 = load x[i, j]
               %1: f64 = load m[i]
               {term}
               %20: f64 = reduce.sum %9
               {tail}
             }} return y, m"
        )
        .replace("%20", "%10")
    };
    let log = "%11: f64 = log %10 %12: f64 = add %11, %1 store y[i] = %12";
    // What is not an exponential of the distance does not matter.
    for term in [
        "%2: f64 = sub %0, %1 %3: f64 = exp %2 %4: f64 = load z[i, j] %5: f64 = mul %3, %4 %6: f64 = const 0.5
         %7: f64 = mul %6, %5 %8: f64 = neg %7 %9: f64 = neg %8",
        "%2: f64 = sub %0, %1 %3: f64 = const 0.25 %4: f64 = mul %2, %3 %5: f64 = exp2 %4 %6: f64 = const 0.0
         %7: f64 = load z[i, j] %8: bool = lt %6, %7 %9: f64 = select %8, %5, %6",
        "%2: f64 = sub %1, %0 %3: f64 = const -2.0 %4: f64 = div %2, %3 %5: f64 = sub %0, %1 %6: f64 = exp %5
         %7: f64 = neg %4 %8: f64 = exp %7 %9: f64 = mul %6, %8",
    ] {
        let nests = [LARGEST, &sum(term, log)].concat();
        if term.contains("const -2.0") {
            // exp(-(m - x)/-2) = exp((m - x)/2) is not bounded.
            assert_eq!(rewritten(&rows(&nests), 1024).1, 0, "{nests}");
        } else {
            assert_online(&nests);
        }
    }
}

#[test]
fn rows_that_are_removed_are_what_they_were() {
    // Row 3 is -inf, row 4 has an inf, row 5 a NaN, row 6 is -inf at first.
    let value = "%0: f64 = load x[i, j] %1: bool = cond i == 3 %2: f64 = const -inf %3: f64 = select %1, %2, %0
        %4: bool = cond i == 4 %5: bool = cond j == 4097 %6: bool = and %4, %5 %7: f64 = const inf
        %8: f64 = select %6, %7, %3 %9: bool = cond i == 5 %10: bool = and %9, %5 %11: f64 = const nan
        %12: f64 = select %10, %11, %8 %13: bool = cond i == 6 %14: bool = cond j < 5000 %15: bool = and %13, %14
        %16: f64 = select %15, %2, %12";
    for tail in [
        "store m[i] = %17",
        "%18: f64 = const 0.0 %19: f64 = abs %17 %20: bool = eq %19, %7 %21: f64 = select %20, %18, %17
         store m[i] = %21",
        "%18: f64 = const 0.0 %19: bool = eq %17, %2 %20: f64 = select %19, %18, %17 store m[i] = %20",
    ] {
        assert_online(&format!(
            "nest max [i in 18 | j in t] {{ {value} %17: f64 = reduce.max %16 {tail} }}
             nest sum [i in 18 | j in t] {{ {value} %17: f64 = load m[i] %18: f64 = sub %16, %17
               %19: f64 = exp %18 %20: f64 = reduce.sum %19 store y[i] = %20 }}
             return y, m"
        ));
    }
}

#[test]
fn a_softmax_computes_its_exponentials_again() {
    let loops = assert_online(&format!(
        "{LARGEST}
         nest exp [i in 18, j in t] {{ %0: f64 = load x[i, j] %1: f64 = load m[i] %2: f64 = sub %0, %1
           %3: f64 = exp %2 store e[i, j] = %3 }}
         nest scale [i in 18 | j in t] {{ %0: f64 = load e[i, j] %1: f64 = reduce.sum %0 %2: f64 = const 1.0
           %3: f64 = div %2, %1 store n[i] = %3 }}
         nest share [i in 18, j in t] {{ %0: f64 = load e[i, j] %1: f64 = load n[i] %2: f64 = mul %0, %1
           store w[i, j] = %2 }}
         return w"
    ));
    let names: Vec<&str> = loops.stmts.iter().map(Stmt::name).collect();
    assert_eq!(names, ["scale_online", "share"]);
}

#[test]
fn distances_from_means() {
    let sum = |factors: &str| {
        format!(
            "nest var [i in 18 | j in t] {{ %0: f64 = load x[i, j] %1: f64 = load m[i] %2: f64 = sub %0, %1 {factors}
               %9: f64 = reduce.sum %8 store y[i] = %9 }}
             return y"
        )
        .replace("%9", "%7")
        .replace("%8", "%6")
    };
    let square = "%3: f64 = const 1000.0 %4: f64 = mul %2, %3 %5: f64 = neg %2 %6: f64 = mul %4, %5";
    assert_online(&[MEAN, &sum(square)].concat());
    // Of something else than what the mean is of.
    let other = "%3: f64 = load z[i, j] %4: f64 = sub %3, %1 %5: f64 = neg %2 %6: f64 = mul %4, %5";
    assert_eq!(rewritten(&rows(&[MEAN, &sum(other)].concat()), 1024).1, 0);
    // Of two means.
    let means = [MEAN, &MEAN.replace("mean", "mean2").replace("x[", "z[").replace("m[", "n[")].concat();
    let both = "%3: f64 = load z[i, j] %4: f64 = load n[i] %5: f64 = sub %3, %4 %6: f64 = mul %2, %5";
    assert_online(&[&means, &sum(both)[..]].concat());
}

#[test]
fn distances_that_are_large_beside_the_mean_keep_their_digits() {
    let shifted = "%0: f64 = load z[i, j] %1: f64 = const 1e9 %2: f64 = add %0, %1";
    let mean = format!(
        "nest mean [i in 18 | j in t] {{ {shifted} %3: f64 = reduce.sum %2 %4: i64 = index t %5: f64 = cast %4
           %6: f64 = div %3, %5 store m[i] = %6 }}
         nest var [i in 18 | j in t] {{ {shifted} %3: f64 = load m[i] %4: f64 = sub %2, %3 %5: f64 = mul %4, %4
           %6: f64 = reduce.sum %5 %7: i64 = index t %8: f64 = cast %7 %9: f64 = div %6, %8 store y[i] = %9 }}
         return y"
    );
    let text = rows(&mean);
    let (loops, count) = rewritten(&text, 1024);
    assert_eq!(count, 1);
    for (expected, found) in
        outputs(&parse(&text), &[("t", 9000)])[0].iter().zip(&outputs(&loops, &[("t", 9000)])[0])
    {
        assert!((expected - found).abs() <= 1e-6 * expected, "{expected} {found}");
    }
}

#[test]
fn weights_that_are_divided_before_they_are_used() {
    let text = attention("18", "t", CAUSAL, "y")
        .replace("buf y:", "buf p: f64[2, 18, t] buf y:")
        .replace(
            "nest out",
            "nest share [h in 2, i in 18, j in t] { %0: f64 = load e[h, i, j] %1: f64 = load l[h, i]
            %2: f64 = div %0, %1 store p[h, i, j] = %2 }
          nest out",
        )
        .replace(
            "%0: f64 = load e[h, i, j]\n    %1: f64 = load v",
            "%0: f64 = load p[h, i, j]\n    %1: f64 = load v",
        )
        .replace(
            "%4: f64 = load l[h, i]\n    %5: f64 = div %3, %4\n    store y[h, i, f] = %5",
            "store y[h, i, f] = %3",
        );
    let (loops, count) = rewritten(&text, 1024);
    assert_eq!(count, 1, "{text}");
    assert!(!loops.to_string().contains("store p"), "{loops}");
    [1, 31, 32, 200].into_iter().for_each(|t| assert_same(&text, &loops, t));
    // Without columns the sum of weights is 0 where each is divided, and no number where the sum is.
    let text = text
        .replace("sym t in [1, 4096]", "sym t in [0, 4096]")
        .replace("%3: f64 = const 1.0", "%3: f64 = const 0.0");
    let (loops, _) = rewritten(&text, 1024);
    [0, 1, 32, 200].into_iter().for_each(|t| assert_same(&text, &loops, t));
}

#[test]
fn what_stands_between_comes_later_or_prevents_it() {
    let between = |stmt: &str| {
        format!(
            "{LARGEST} {stmt}
         nest sum [i in 18 | j in t] {{ %0: f64 = load x[i, j] %1: f64 = load m[i] %2: f64 = sub %0, %1
           %3: f64 = exp %2 %4: f64 = reduce.sum %3 store y[i] = %4 }}
         return y, n"
        )
    };
    let loops = assert_online(&between(
        "nest twice [i in 18] { %0: f64 = load m[i] %1: f64 = add %0, %0 store n[i] = %1 }",
    ));
    let names: Vec<&str> = loops.stmts.iter().map(Stmt::name).collect();
    assert_eq!(names, ["sum_online", "twice"]);
    // What is written before it is read may be written where it is.
    let weighted = format!(
        "{LARGEST} nest weight [i in 18, j in t] {{ %0: f64 = load z[i, j] %1: f64 = add %0, %0 store w[i, j] = %1 }}
         nest sum [i in 18 | j in t] {{ %0: f64 = load x[i, j] %1: f64 = load m[i] %2: f64 = sub %0, %1
           %3: f64 = exp %2 %4: f64 = load w[i, j] %5: f64 = mul %3, %4 %6: f64 = reduce.sum %5 store y[i] = %6 }}"
    );
    let loops = assert_online(&format!("{weighted} return y, w"));
    let names: Vec<&str> = loops.stmts.iter().map(Stmt::name).collect();
    assert_eq!(names, ["weight", "sum_online"]);
    let again = "nest again [i in 18, j in t] { %0: f64 = load z[i, j] store w[i, j] = %0 }
        nest more [i in 18 | j in t] { %0: f64 = load x[i, j] %1: f64 = load m[i] %2: f64 = sub %0, %1
          %3: f64 = exp %2 %4: f64 = reduce.sum %3 store n[i] = %4 }";
    let text = rows(&format!("{weighted} {again} return y, n, w"));
    let (loops, _) = rewritten(&text, 1024);
    assert_same(&text, &loops, 9000);
    let text = rows(&between(
        "nest twice [i in 18] { %0: f64 = load m[i] %1: f64 = add %0, %0 store n[i] = %1 store m[i] = %1 }",
    ));
    assert_eq!(rewritten(&text, 1024).1, 0, "m is another when it is read");
}

/// The program with what idle points of a region leave behind: buffers that are not carried hold NaN, and others what they held.
fn with_idle_points_left_out(loops: &Loops) -> Loops {
    let mut loops = loops.clone();
    let mut count = 0;
    for stmt in &mut loops.stmts {
        let Stmt::Recurrence(region) = stmt else { continue };
        for nest in &mut region.nests {
            let Some(idle) = nest.idle else { continue };
            let (mut body, mut map): (Vec<Inst>, Vec<Val>) = (Vec::new(), Vec::new());
            for mut inst in std::mem::take(&mut nest.body) {
                inst.op.operands_mut().into_iter().for_each(|val| *val = map[val.index()]);
                let mut push = |op, ty| {
                    body.push(Inst { op, ty });
                    Val::new(body.len() - 1)
                };
                if let InstOp::Store { buf, index, value, .. } = &mut inst.op {
                    let ty = inst.ty;
                    let is_idle = push(InstOp::Cond(idle), Dtype::Bool);
                    let left = if region.carry.contains(buf) {
                        let (guard, other) = (Vec::new(), Scalar::zero(ty));
                        push(InstOp::Load { buf: *buf, index: index.clone(), guard, other }, ty)
                    } else {
                        push(InstOp::Const(Scalar::Float(f64::NAN)), ty)
                    };
                    *value = push(InstOp::Op(ScalarOp::Select, vec![is_idle, left, *value]), ty);
                    count += 1;
                }
                map.push(push(inst.op, inst.ty));
            }
            nest.body = body;
        }
    }
    assert!(count > 0, "nothing is idle in\n{loops}");
    loops
}

#[test]
fn idle_points_change_nothing() {
    for (rows, columns) in [("18", "192"), ("200", "t"), ("200", "320")] {
        let text = attention(rows, columns, CAUSAL, "y, m, l");
        for text in [apart(&text), text] {
            let (loops, _) = rewritten(&text, 1024);
            let left_out = with_idle_points_left_out(&loops);
            for t in [1, 32, 33, 200] {
                assert_eq!(
                    outputs(&left_out, &[("t", t)]),
                    outputs(&loops, &[("t", t)]),
                    "t = {t} of\n{loops}"
                );
            }
        }
    }
}

#[test]
fn blocks_that_a_mask_removes_are_idle() {
    let idle_in = |text: &str| {
        let (loops, count) = rewritten(text, 1024);
        assert_eq!(count, 1, "{text}");
        let repeated = |nest: &&Nest| nest.axes[0].var.name() == "jb";
        let nests = loops.stmts.iter().flat_map(Stmt::nests).filter(repeated);
        let mut all: Vec<Option<String>> = nests.map(|nest| nest.idle.map(|idle| idle.to_string())).collect();
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    };
    let idle = |mask: &str| {
        let text = attention("18", "192", mask, "y");
        let found = idle_in(&text);
        assert_eq!(idle_in(&apart(&text)), found, "{mask}");
        found
    };
    assert_eq!(idle(CAUSAL).as_deref(), Some("i < 64*jb"));
    let window =
        "%4: bool = cond j <= i + 70 %5: bool = cond i <= j + 3 %6: bool = and %4, %5 %7: f64 = const -inf
        %9: f64 = select %6, %3, %7";
    assert_eq!(idle(window).as_deref(), Some("i + 70 < 64*jb"));
    assert_eq!(idle(SCALE), None);
    assert_eq!(idle(ROWS), None, "the first blocks are removed, not the last ones");
    let halved =
        "%4: bool = cond j <= i %5: f64 = const 0.5 %6: f64 = mul %5, %3 %9: f64 = select %4, %3, %6";
    assert_eq!(idle(halved), None, "scores that are not removed change something");
}
