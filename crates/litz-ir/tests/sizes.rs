//! Finds the sizes of inputs that give symbols their values.

use litz_ir::program::{Program, SizeSource};
use litz_ir::text::program::parse;
use litz_sym::{Expr, Sym};

fn program(text: &str) -> Program {
    parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]))
}

#[test]
fn sizes_that_are_symbols_come_first() {
    let program = program(
        "program @p on cpu {
  sym s0 in [1, 64]
  sym s1 in [1, 64]
  sym s2 in [1, 64]
  sym s3 in [5, 5]
  sym u0 in [0, 8]
  param x: f32[2*s0 + 1, s1]
  param y: f32[s0, s0*s2 + s3]
  param n: i64[1]
  size u0 = n
  return
}
",
    );
    let named = Expr::named;
    let source = |name: &str, param, dim, coefficient, rest| SizeSource {
        sym: Sym::new(name),
        param,
        dim,
        coefficient,
        rest,
    };
    let (one, zero) = (Expr::one(), Expr::zero());
    assert_eq!(program.fixed_sizes(), [(Sym::new("s3"), 5)]);
    assert_eq!(program.late_sizes(), [Sym::new("u0")]);
    assert_eq!(
        program.size_sources(),
        [
            source("s1", 0, 1, one, zero),
            source("s0", 1, 0, one, zero),
            source("s2", 1, 1, named("s0"), named("s3"))
        ]
    );
}

#[test]
fn what_no_size_gives_has_no_source() {
    let text = "program @p on cpu {
  sym s0 in [1, 64]
  sym s1 in [1, 64]
  param x: f32[s0*s1]
  param y: f32[mod(s0, 3)]
  return
}
";
    assert_eq!(program(text).size_sources(), []);
}
