//! The loops pass `online`: attention by blocks of columns gives what attention by rows does.

mod common;

use common::{outputs, parse, verify};
use litz_ir::loops::{Loops, Stmt};
use litz_passes::loops::{Settings, online};

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

const SCALE: &str = "%4: f64 = const 0.25 %9: f64 = mul %3, %4";
const CAUSAL: &str = "%4: bool = cond j <= i %5: f64 = const -inf %9: f64 = select %4, %3, %5";
/// Keeps where a random integer is positive: first columns of some rows are all removed.
const MASK: &str = "%4: f64 = load keep[i, j] %5: f64 = const 2.0 %6: bool = lt %5, %4
    %7: f64 = const -inf %9: f64 = select %6, %3, %7";
/// Removes every column of odd rows, and all but the last ones of others.
const ROWS: &str = "%4: bool = cond 150 <= j %5: bool = cond 2*floordiv(i, 2) == i %6: bool = and %4, %5
    %7: f64 = const -inf %9: f64 = select %6, %3, %7";

fn rewritten(text: &str, cache_bytes: i64) -> (Loops, usize) {
    let mut loops = parse(text);
    let count = online::run(&mut loops, &Settings { cache_bytes, ..Settings::default() });
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
        assert!(loops.stmts.iter().any(|s| matches!(s, Stmt::Region(_))), "{loops}");
        for t in [1, 31, 32, 200] {
            let (expected, found) = (outputs(&parse(&text), &[("t", t)]), outputs(&loops, &[("t", t)]));
            let pairs = expected.iter().flatten().zip(found.iter().flatten());
            for (expected, found) in pairs {
                let is_close = (expected - found).abs() <= 1e-12 * expected.abs().max(1.0);
                assert!(is_close, "{expected} {found}, t = {t} of\n{loops}");
            }
        }
    }
}

#[test]
fn rows_that_fit_and_results_that_are_wanted_stay() {
    let text = attention("18", "200", SCALE, "y");
    assert_eq!(rewritten(&text, 1 << 20).1, 0, "rows that fit in the cache");
    assert_eq!(rewritten(&attention("2", "200", SCALE, "y"), 1024).1, 0, "few rows");
    for other in ["s", "m", "e", "l"] {
        assert_eq!(rewritten(&attention("18", "200", SCALE, &format!("y, {other}")), 1024).1, 0, "{other}");
    }
}
