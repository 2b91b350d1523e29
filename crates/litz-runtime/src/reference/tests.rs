//! Checks the reference device: kernels as text, and the memories after them.

use super::run::is_better;
use super::*;
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use half::bf16;
use litz_ir::Dtype;

fn kernel(text: &str) -> Kernel {
    litz_ir::text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"))
}

/// Runs a kernel that reads `x` and writes `count` elements of another type.
fn run_one<T: Pod, U: Pod>(text: &str, x: &[T], count: usize, sizes: &[i64]) -> Result<Vec<U>, RunError> {
    let mut y = vec![U::zeroed(); count];
    let mut args = [MemView::Read(cast_slice(x)), MemView::Write(cast_slice_mut(&mut y))];
    run(&kernel(text), &mut args, sizes)?;
    Ok(y)
}

/// `(1 + ulp)^2 - 1 - 2 ulp` is `ulp^2`, which a product that is rounded first has lost.
#[test]
fn a_fused_multiply_add_rounds_once() {
    let text = |store: &str| {
        format!(
            "kernel @k {{ read x: f32[1] write y: f32[2]
              for i in 2 {{
                %0: f32 = const {}  y[i] = %0
                %1: f32 = load x[0]  {store}
              }} }}",
            -1.0 - 2.0 * f32::EPSILON
        )
    };
    let x = [1.0 + f32::EPSILON];
    let fused = run_one::<f32, f32>(&text("y[i] fma= %1, %1 if i < 1"), &x, 2, &[]).expect("runs");
    assert_eq!(fused, [f32::EPSILON * f32::EPSILON, -1.0 - 2.0 * f32::EPSILON]);
    let rounded = run_one::<f32, f32>(&text("%2: f32 = mul %1, %1  y[i] sum= %2"), &x, 2, &[]);
    assert_eq!(rounded.expect("runs"), [0.0, 0.0]);
}

#[test]
fn a_matrix_product_with_register_tiles() {
    let text = "kernel @k from n0 {
      read a: f32[3*s0]
      read b: f32[12]
      write c: f32[4*s0]
      size s0 in [0, 100]
      grid i in s0 grain 2
      register acc: f32[4]
      vector j in 4 by 4 {
        %0: f32 = const 0.0
        acc[j] = %0
      }
      for k in 3 {
        vector j in 4 by 4 {
          %1: f32 = load a[3*i + k]
          %2: f32 = load b[4*k + j]
          %3: f32 = mul %1, %2
          acc[j] sum= %3
        }
      }
      vector j in 4 by 4 {
        %4: f32 = load acc[j]
        c[4*i + j] = %4
      }
    }";
    let (a, b): (Vec<f32>, Vec<f32>) =
        ((0..6u8).map(f32::from).collect(), (0..12u8).map(f32::from).collect());
    for rows in [0, 1, 2] {
        let mut c = [-1.0f32; 8];
        let written = &mut c[..4 * rows];
        let mut args = [
            MemView::Read(cast_slice(&a[..3 * rows])),
            MemView::Read(cast_slice(&b)),
            MemView::Write(cast_slice_mut(written)),
        ];
        run(&kernel(text), &mut args, &[rows as i64]).expect("the kernel is sound");
        let expected = [20.0, 23.0, 26.0, 29.0, 56.0, 68.0, 80.0, 92.0];
        assert_eq!(c[..4 * rows], expected[..4 * rows]);
        assert!(c[4 * rows..].iter().all(|&x| x == -1.0));
    }
}

#[test]
fn guards_keep_loads_and_stores_away() {
    // Pads by one on each side; the store leaves odd elements alone.
    let text = "kernel @pad from n {
      read x: f32[n]
      write y: f32[n + 2]
      size n in [0, 10]
      grid i in n + 2
      %0: f32 = load x[i - 1] if 1 <= i, i < n + 1 else -7.0
      y[i] = %0 if mod(i, 2) == 0
    }";
    assert_eq!(
        run_one::<f32, f32>(text, &[1.0, 2.0, 3.0], 5, &[3]).expect("sound"),
        [-7.0, 0.0, 2.0, 0.0, -7.0]
    );
    assert_eq!(run_one::<f32, f32>(text, &[], 2, &[0]).expect("sound"), [-7.0, 0.0]);
}

#[test]
fn branches_and_conditions() {
    let text = "kernel @branch from n {
      read x: i32[6]
      write y: i32[6]
      grid i in 6
      %0: i32 = load x[i]
      %2: bool = cond i == 5
      if 2 <= i, i < 4 {
        %1: i32 = neg %0
        y[i] = %1
      } else {
        %3: i64 = index 10*i + 1
        %4: i32 = cast %3
        %5: i32 = select %2, %4, %0
        y[i] = %5
      }
    }";
    assert_eq!(run_one::<i32, i32>(text, &[1, 2, 3, 4, 5, 6], 6, &[]).expect("sound"), [1, 2, -3, -4, 5, 51]);
}

#[test]
fn half_types_widen_and_round() {
    let text = "kernel @halves from n {
      read x: bf16[2]
      write y: bf16[4]
      grid i in 2
      %0: f32 = load x[i]
      %1: f32 = const 1.0
      %2: f32 = add %0, %1
      %3: f32 = round.bf16 %2
      %4: f32 = sub %3, %0
      y[i] = %2
      y[i + 2] = %4
    }";
    let x = [bf16::from_f32(256.0), bf16::from_f32(0.5)];
    let y = run_one::<bf16, bf16>(text, &x, 4, &[]).expect("sound");
    assert_eq!(y.map_f32(), [256.0, 1.5, 0.0, 1.0]);
}

trait MapF32 {
    fn map_f32(&self) -> Vec<f32>;
}

impl MapF32 for Vec<bf16> {
    fn map_f32(&self) -> Vec<f32> {
        self.iter().map(|x| x.to_f32()).collect()
    }
}

#[test]
fn half_bits_are_reinterpreted_whole() {
    let text = "kernel @bits from n {
      read x: bf16[2]
      write y: i16[2]
      grid i in 2
      %0: bf16 = load x[i]
      %1: i16 = bitcast %0
      y[i] = %1
    }";
    let nan = bf16::from_bits(0x7fa5);
    assert_eq!(
        run_one::<bf16, i16>(text, &[nan, bf16::NEG_ONE], 2, &[]).expect("sound"),
        [0x7fa5, 0xbf80u16 as i16]
    );
}

#[test]
fn bound_indices_gather_and_are_checked() {
    let text = "kernel @gather from n {
      read x: i64[4]
      write y: f32[4]
      grid i in 4
      check 0 = \"index of x out of range\"
      check 1 = \"second index out of range\"
      %0: i64 = load x[i]
      bind t = %0 in 10, check 1
      %1: i64 = index 2*t
      %2: f32 = cast %1
      y[i] = %2
    }";
    assert_eq!(run_one::<i64, f32>(text, &[0, 9, 3, 3], 4, &[]).expect("sound"), [0.0, 18.0, 6.0, 6.0]);
    for bad in [10, -1, i64::MIN] {
        let error = run_one::<i64, f32>(text, &[0, 1, bad, 0], 4, &[]).expect_err("out of range");
        assert_eq!(error.to_string(), "kernel @gather: second index out of range");
    }
}

#[test]
fn combining_stores() {
    let text = "kernel @combine from n {
      read x: f32[4]
      write y: f32[4]
      grid
      for i in 4 {
        %0: f32 = load x[i]
        y[0] sum= %0
        atomic y[1] sum= %0
        y[2] max= %0
        y[3] min= %0
      }
    }";
    let text = &text.replace("      grid\n", "");
    assert_eq!(
        run_one::<f32, f32>(text, &[1.0, -2.0, 4.0, 0.5], 4, &[]).expect("sound"),
        [3.5, 3.5, 4.0, -2.0]
    );
    let y = run_one::<f32, f32>(text, &[1.0, f32::NAN, 4.0, 0.5], 4, &[]).expect("sound");
    assert!(y.iter().all(|x| x.is_nan()));
}

fn argmax(op: &str, init: &str, x: &[f32]) -> i64 {
    let text = format!(
        "kernel @arg from n {{
          read x: f32[n]
          write y: i64[1]
          size n in [1, 100]
          register best: f32[1]
          %0: f32 = const {init}
          best[0] = %0
          %1: i64 = const 0
          y[0] = %1
          for i in n {{
            %2: f32 = load x[i]
            best[0], y[0] {op}= %2, i
          }}
        }}"
    );
    run_one::<f32, i64>(&text, x, 1, &[x.len() as i64]).expect("sound")[0]
}

#[test]
fn positions_of_extremes() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    assert_eq!(argmax("argmax", "-inf", &[1.0, 3.0, 3.0, 2.0]), 1);
    assert_eq!(argmax("argmax", "-inf", &[1.0, nan, 5.0, nan]), 1);
    assert_eq!(argmax("argmax", "-inf", &[-inf, -inf]), 0);
    assert_eq!(argmax("argmin", "inf", &[4.0, -1.0, 0.0, -1.0]), 1);
    assert_eq!(argmax("argmin", "inf", &[4.0, nan, -inf]), 1);
    assert_eq!(argmax("argmin", "inf", &[0.0, -0.0]), 0);
}

#[test]
fn the_first_of_equals_wins_in_any_order() {
    let ints = |a: i64, b: i64| (a as u64 as Bits, b);
    assert!(is_better(true, Dtype::I64, ints(5, 3), ints(5, 4)));
    assert!(!is_better(true, Dtype::I64, ints(5, 4), ints(5, 3)));
    assert!(is_better(true, Dtype::I64, ints(i64::MAX, 9), ints(i64::MAX - 1, 0)));
    assert!(is_better(false, Dtype::I64, ints(-1, 9), ints(0, 0)));
}

#[test]
fn local_memory_holds_nothing_at_first() {
    let text = "kernel @locals from n {
      read x: f32[1]
      write y: f32[3]
      grid i in 3
      scratch t: f32[1]
      %0: f32 = load t[0]
      y[i] = %0
      %1: f32 = load x[0]
      t[0] = %1
    }";
    let y = run_one::<f32, f32>(text, &[1.0], 3, &[]).expect("sound");
    assert!(y.iter().all(|x| x.is_nan()), "{y:?}");
}

#[test]
fn reads_may_share_bytes() {
    let text = "kernel @double from n {
      read a: u8[2]
      read b: u8[2]
      write c: u8[2]
      grid i in 2
      %0: u8 = load a[i]
      %1: u8 = load b[i]
      %2: u8 = add %0, %1
      c[i] = %2
    }";
    let (x, mut y) = ([100u8, 200], [0u8; 2]);
    run(&kernel(text), &mut [MemView::Read(&x), MemView::Read(&x), MemView::Write(&mut y)], &[])
        .expect("sound");
    assert_eq!(y, [200, 144]);
}

#[track_caller]
fn expect_bug(text: &str, expected: &str) {
    match run_one::<f32, f32>(text, &[1.0; 4], 4, &[]) {
        Err(RunError::Bug { what, .. }) => assert_eq!(what, expected),
        other => panic!("expected a bug, found {other:?}"),
    }
}

#[test]
fn broken_kernels_are_found_out() {
    let header = "kernel @k from n {\n read x: f32[4]\n write y: f32[4]\n grid i in 5\n";
    let body = |lines: &str| format!("{header}{lines}\n}}");
    expect_bug(&body("%0: f32 = load x[i]\ny[i] = %0"), "memory x: expected an index below 4, found 4");
    expect_bug(&body("%0: f32 = const 1.0\ny[0] = %0"), "memory y: points of the grid race for element 0");
    expect_bug(&body("%0: f32 = const 1.0\ny[i - 1] = %0"), "memory y: expected an index below 4, found -1");
    expect_bug(&body("%0: f32 = const 1.0\nx[0] = %0"), "store to x, which is only read");
    expect_bug(&body("%0: f32 = load x[j]"), "`j` uses symbol j, which nothing defines");
    expect_bug(&body("%0: f32 = load x[floordiv(4, i)]"), "an index expression overflows or divides by zero");
    expect_bug(&body("%0: f32 = const 1.0\n%1: f32 = and %0, %0"), "and has no meaning for f32");
    expect_bug(&body("%0: f32 = const 1.0\n%1: i64 = bitcast %0"), "bitcast of f32 to i64");
    expect_bug(
        &body("%0: f32 = const 1.0\n%1: i64 = index i\n%2: f32 = add %1, %0"),
        "expected operand 0 of add to be f32, found i64",
    );
    expect_bug(&body("%0: f32 = const 1.0\n%1: f32 = lt %0, %0"), "lt of f32 gives bool, found f32");
}

#[test]
fn short_and_missing_memories_are_refused() {
    let text = "kernel @k from n {\n read x: f32[4]\n write y: f32[4]\n}";
    let (x, mut y) = ([0u8; 16], [0u8; 15]);
    let error = run(&kernel(text), &mut [MemView::Read(&x), MemView::Write(&mut y)], &[]).expect_err("short");
    assert_eq!(error.to_string(), "bug in kernel @k: memory y: expected 16 bytes, found 15");
    let error =
        run(&kernel(text), &mut [MemView::Read(&x), MemView::Read(&x)], &[]).expect_err("not writable");
    assert_eq!(error.to_string(), "bug in kernel @k: memory y is written, but given only to be read");
    let error = run(&kernel(text), &mut [MemView::Read(&x)], &[]).expect_err("missing");
    assert_eq!(
        error.to_string(),
        "bug in kernel @k: expected 2 memories and 0 sizes, found 1 memories and 0 sizes"
    );
}
