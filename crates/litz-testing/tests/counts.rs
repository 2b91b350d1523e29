//! What accesses of warps take: sectors of global memory, and banks of memory that threads share.

use litz_ir::text;
use litz_runtime::reference::{Counts, Interpreter, MemView, Served};

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
fn transposed(layout: &str, n: usize) -> Served {
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
    let rounds = kernel.count(&mut args, &[n as i64]).expect("a run").banks;
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
    assert_eq!(transposed("", 64), Served { taken: 4 * (32 + 32 * 32), least: needed });
    for layout in ["padded 1", "swizzled 4"] {
        assert_eq!(transposed(layout, 64), Served { taken: needed, least: needed }, "{layout}");
    }
    // Two neighbours stay together: 16 units of 8 bytes have 16 places, and two rows have the same.
    assert_eq!(transposed("swizzled 8", 64), Served { taken: 4 * (32 + 32 * 2), least: needed });
    // What is past the end is copied and read by nobody.
    assert_eq!(transposed("swizzled 4", 33).taken, transposed("padded 1", 33).taken);
}

/// Of lines 0, 1, 4, 5, 8, 9, 12 and 13 the first 16 bytes are in four sets of banks; in pairs they are in eight, and so are those of eight
/// lines below each other.
#[test]
fn every_other_pair_of_rows_is_in_different_banks() {
    let read = |layout: &str, line: &str| {
        let text = format!(
            "kernel @k {{ read x: f32[4096] write y: f32[4096] shared xs: f32[512] swizzled 4 of 32{layout}
               thread t in 512 {{ %0: f32 = load x[t]  xs[t] = %0 }}
               barrier block
               lane l in 8 {{ vector v in 4 by 4 {{ %1: f32 = load xs[32*({line}) + v]  y[4*l + v] = %1 }} }} }}"
        );
        let filled = 512 / 32;
        counted(&text, [4, 4]).banks.taken - filled
    };
    let pairs = "mod(l, 2) + 4*floordiv(l, 2)";
    assert_eq!([read("", pairs), read("", "l + 8")], [2, 1]);
    assert_eq!([read(" in pairs", pairs), read(" in pairs", "l + 8")], [1, 1]);
}

/// Counts of a kernel that reads 4096 elements and writes as many, of types of so many bytes.
fn counted(text: &str, [reads, writes]: [usize; 2]) -> Counts {
    let kernels = text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    let (x, mut y) = (vec![0; 4096 * reads], vec![0; 4096 * writes]);
    let mut args = [MemView::Read(&x), MemView::Write(&mut y)];
    let in_order = Interpreter::new(&kernels).expect("a kernel that resolves");
    let counts = in_order.count(&mut args, &[]).expect("a run");
    let interleaved = in_order.seeded(7).count(&mut args, &[]).expect("a run");
    assert_eq!(interleaved, counts, "whoever comes first");
    counts
}

#[test]
fn a_warp_touches_the_sectors_of_its_lanes() {
    let copy = |from: &str, to: &str| {
        let text = format!(
            "kernel @k {{ read x: f32[4096] write y: f32[4096] warp w in 2 {{ lane l in 32 {{
               %0: f32 = load x[{from}]  y[{to}] = %0
             }} }} }}"
        );
        let counts = counted(&text, [4, 4]);
        [counts.loads, counts.stores].map(|served| [served.taken, served.least])
    };
    assert_eq!(copy("32*w + l", "32*w + l"), [[8, 8], [8, 8]]);
    assert_eq!(copy("32*w + l + 1", "2*l + 64*w"), [[10, 8], [16, 8]]);
    assert_eq!(copy("0", "64*l + w"), [[2, 2], [64, 8]], "one sector serves all lanes");
}

/// Elements of a vector are one access up to 16 bytes; what is not adjacent is not.
#[test]
fn a_thread_accesses_vectors_at_once() {
    let copy = |dtype: &str, count: u32, at: &str| {
        let text = format!(
            "kernel @k {{ read x: {dtype}[4096] write y: {dtype}[4096] lane l in 32 {{
               vector v in {count} by {count} {{ %0: f32 = load x[{at}]  y[{count}*l + v] = %0 }}
             }} }}"
        );
        let bytes = if dtype == "f32" { 4 } else { 2 };
        let Counts { loads, stores, .. } = counted(&text, [bytes; 2]);
        [loads, stores].map(|served| [served.taken, served.least])
    };
    assert_eq!(copy("bf16", 8, "8*l + v"), [[16, 16], [16, 16]]);
    // Two of four elements each, of which every other half of a sector is read.
    assert_eq!(copy("f32", 8, "8*l + v"), [[64, 32], [64, 32]]);
    assert_eq!(copy("f32", 4, "32*v + l"), [[16, 16], [16, 16]]);
    assert_eq!(copy("f32", 4, "128*v + 4*l"), [[64, 16], [16, 16]]);
}

/// Lanes that do not take part in an iteration do not come late to the next one.
#[test]
fn lanes_meet_at_the_same_iteration() {
    let text = "kernel @k { read x: f32[4096] write y: f32[4096] lane l in 32 {
        for c in 4 {
          if 8*c <= l {
            %0: f32 = load x[32*c + l]
            y[32*c + l] = %0
          }
        }
      } }";
    let counts = counted(text, [4, 4]);
    assert_eq!(counts.loads, Served { taken: 4 + 3 + 2 + 1, least: 10 });
    assert_eq!(counts.acts.into_iter().collect::<Vec<_>>(), [("load", 80), ("store", 80)]);
}

#[test]
fn copies_in_the_background_by_a_team_are_boxes() {
    let text = "kernel @k { read x: f32[4096] write y: f32[4096]
        shared xs: f32[256]
        register r: f32[64]
        for b in 2 {
          warp w in 1 from 2 {
            for i in 4 { for j in 16 { copy async 1 x[1024*b + 64*i + j] to xs[16*i + j + 64*b] } }
            commit
            wait 0
          }
        }
        barrier block
        thread t in 64 {
          unroll e in 2 { %0: f32 = load xs[64*e + t]  r[t] = %0  y[64*e + t] = %0 }
        }
      }";
    let counts = counted(text, [4, 4]);
    assert_eq!(counts.loads, Served { taken: 16, least: 16 }, "two boxes of four rows of 64 bytes");
    assert_eq!((counts.async_bytes, counts.shared_bytes, counts.register_bytes), (512, 1024, 4));
    assert_eq!(counts.banks, Served { taken: 4, least: 4 });
    // Three warps meet once, and one of them copies, closes two groups and waits twice.
    assert_eq!(counts.acts["sync"], 96 + 4 * 32);
}
