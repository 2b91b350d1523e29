//! Layouts of memory that threads share: elements below each other are in different banks.

use litz_ir::text;
use litz_runtime::reference::{Interpreter, MemView, Rounds};

const LOOPS: &str = "
loops @l on cpu {
  sym n in [1, 64]
  buf x: f32[n, 64] = input
  buf y: f32[64, n]
  nest turn [j in 64, i in n] {
    %0: f32 = load x[i, j]
    store y[j, i] = %0
  }
  return y
}";

/// Transposes blocks of 32 by 32 in shared memory that is laid out so.
fn transposed(layout: &str, n: usize) -> Rounds {
    let schedule = format!(
        "schedule @l of @l for gpu(isa=sm90, units=132) {{
           kernel k0 {{
             parallel io in ceildiv(n, 32), jo in 2 {{
               shared xs = x {layout}
               thread t in 256 {{
                 for c in 4 {{ xs [d0 = 32*io + floordiv(t, 32) + 8*c, d1 = 32*jo + mod(t, 32)] masked }}
               }}
               thread t in 256 {{
                 for c in 4 {{ turn [j = 32*jo + floordiv(t, 32) + 8*c, i = 32*io + mod(t, 32)] masked }}
               }}
             }}
           }}
         }}"
    );
    let loops = text::loops::parse(LOOPS).expect("loops that read");
    let schedule = text::schedule::parse(&schedule).expect("a schedule that reads");
    let problems = litz_analysis::legality::verify(&schedule, &loops);
    assert!(problems.is_empty(), "{problems:?}");
    let realized = litz_codegen::realize(&loops, &schedule).expect("kernels");
    let x: Vec<u8> = (0..n * 64).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let mut y = vec![0; x.len()];
    let mut args = [MemView::Read(&x), MemView::Write(&mut y)];
    let kernel = Interpreter::new(&realized.kernels[0]).expect("a kernel that resolves");
    let rounds = kernel.count_rounds(&mut args, &[n as i64]).expect("a run");
    let found: Vec<f32> =
        y.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect();
    let expected: Vec<f32> = (0..64).flat_map(|j| (0..n).map(move |i| (i * 64 + j) as f32)).collect();
    assert_eq!(found, expected, "{layout}");
    rounds
}

/// A warp that reads a column of a dense block comes to one bank 32 times; padded rows and swizzled ones are read at once.
#[test]
fn a_column_of_a_block_is_in_different_banks() {
    // 4 blocks of 32 rows that are stored, and 32 columns that are loaded.
    let needed = 4 * 64;
    assert_eq!(transposed("", 64), Rounds { taken: 4 * (32 + 32 * 32), needed });
    for layout in ["padded 1", "swizzled 4"] {
        assert_eq!(transposed(layout, 64), Rounds { taken: needed, needed }, "{layout}");
    }
    // Two neighbours stay together: 16 units of 8 bytes have 16 places, and two rows have the same.
    assert_eq!(transposed("swizzled 8", 64), Rounds { taken: 4 * (32 + 32 * 2), needed });
    // What is past the end is copied and read by nobody.
    assert_eq!(transposed("swizzled 4", 33).taken, transposed("padded 1", 33).taken);
}
