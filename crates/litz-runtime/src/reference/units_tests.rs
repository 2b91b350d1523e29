//! Checks the reference device where threads run side by side: what it finds, and that seeds decide the rest.

use super::*;

const SEEDS: std::ops::Range<u64> = 0..20;

/// Runs a kernel that writes `count` elements of i32, by a seed.
fn run_by(text: &str, count: usize, seed: u64) -> Result<Vec<i32>, RunError> {
    let kernel = litz_ir::text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    let mut y = vec![0; count];
    let mut args = [MemView::Write(bytemuck::cast_slice_mut(&mut y))];
    Interpreter::new(&kernel)?.seeded(seed).run(&mut args, &[])?;
    Ok(y)
}

#[track_caller]
fn expect(text: &str, expected: &[i32]) {
    for seed in SEEDS {
        let found = run_by(text, expected.len(), seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[track_caller]
fn expect_error(text: &str, count: usize, expected: &str) {
    for seed in SEEDS {
        let error = run_by(text, count, seed).expect_err(expected).to_string();
        assert!(error.contains(expected), "seed {seed}: expected\n{expected}\nfound\n{error}");
    }
}

/// Warps hand what they have around: each takes what its neighbour left.
fn around(barriers: [&str; 2]) -> String {
    let [first, second] = barriers;
    format!(
        "kernel @k {{ write y: i32[128] shared s: i32[128] register r: i32[1]
           warp w in 4 {{
             lane l in 32 {{ %0: i64 = index 32*w + l  %1: i32 = cast %0  r[0] = %1  s[32*w + l] = %1 }}
             for k in 3 {{
               {first}
               lane l in 32 {{ %2: i32 = load s[mod(32*w + l + 32, 128)]  y[32*w + l] = %2 }}
               {second}
               lane l in 32 {{ %3: i32 = load y[32*w + l]  s[32*w + l] = %3 }}
             }}
           }} }}"
    )
}

#[test]
fn units_meet_inside_of_loops_over_them() {
    let expected: Vec<i32> = (0..128).map(|at| (at + 96) % 128).collect();
    expect(&around(["barrier block"; 2]), &expected);
    expect_error(&around(["barrier block", ""]), 128, "memory s: threads race for element");
    expect_error(&around(["", "barrier block"]), 128, "memory s: threads race for element");
    expect_error(&around(["barrier warp"; 2]), 128, "memory s: threads race for element");
}

#[test]
fn races_name_both_acts() {
    let text = "kernel @k { write y: i32[64] shared s: i32[64]
        thread t in 64 { %0: i32 = const 1  s[t] = %0 }
        thread t in 64 { %1: i32 = load s[63 - t]  y[t] = %1 } }";
    let error = run_by(text, 64, 1).expect_err("a race").to_string();
    for act in [" at `s[t] = %0`", " at `%1: i32 = load s[-t + 63]`"] {
        assert!(error.contains(act), "{error}");
    }
    let other = |act: &str| {
        format!(
            "kernel @k {{ write y: i32[64] register r: i32[64]
               thread t in 64 {{ %0: i32 = const 1  r[t] = %0 }}
               barrier block
               thread t in 64 {{ {act} }} }}"
        )
    };
    expect(&other("%1: i32 = load r[t]  y[t] = %1"), &[1; 64]);
    expect_error(&other("%1: i32 = load r[63 - t]  y[t] = %1"), 64, "memory r: threads race for element");
}

#[test]
fn who_waits_for_nobody_is_a_deadlock() {
    let missing = "kernel @k { write y: i32[1] warp w in 3 { if w < 1 { barrier block } } }";
    expect_error(missing, 1, "deadlock: threads 0 to 31 at `barrier block`, threads 32 to 95 elsewhere");
    let apart = "kernel @k { write y: i32[1]
        warp w in 2 { if w < 1 { barrier block } else { commit  barrier block } } }";
    expect_error(apart, 1, "deadlock: threads 0 to 31 at `barrier block`, threads 32 to 63 at");
    let lanes = "kernel @k { write y: i32[1] lane l in 8 { barrier warp } }";
    expect_error(lanes, 1, "deadlock: thread 0 at `barrier warp`, threads 1 to 31 elsewhere");
    let turns = "kernel @k { write y: i32[1] chain b in 3 { await turn } }";
    expect_error(turns, 1, "deadlock: threads 0 to 31 elsewhere, threads 1024 to 1055 at `await turn`");
}

#[test]
fn copies_are_under_way_until_they_are_waited_for() {
    let text = |ahead: &str, behind: &str| {
        format!(
            "kernel @k {{ write y: i32[32] global x: i32[32] shared s: i32[32]
               thread t in 32 {{ %0: i64 = index t  %1: i32 = cast %0  x[t] = %1 }}
               barrier block
               thread t in 32 {{ copy async 1 x[t] to s[t] }}
               commit
               {ahead}
               wait 0
               {behind}
               thread t in 32 {{ %2: i32 = load s[31 - t]  y[t] = %2 }} }}"
        )
    };
    let expected: Vec<i32> = (0..32).rev().collect();
    expect(&text("", "barrier block"), &expected);
    expect_error(&text("barrier block", ""), 32, "memory s: threads race for element");
    let reads = "barrier block thread t in 32 { %3: i32 = load s[t]  y[t] = %3 } barrier block";
    expect_error(&text(reads, "barrier block"), 32, "memory s: threads race for element");
    let stores = "barrier block thread t in 32 { %3: i32 = const 7  x[t] = %3 } barrier block";
    expect_error(&text(stores, "barrier block"), 32, "memory x: threads race for element");
    let alone = text("", "barrier block").replace("commit", "");
    expect_error(&alone, 32, "memory s: threads race for element");
}

#[test]
fn blocks_hand_on_turns_and_the_last_one_goes_on() {
    let chain = "kernel @k { write y: i32[40] global run: i32[1] shared own: i32[1]
        %0: i32 = const 1
        chain b in 40 {
          own[0] = %0
          await turn
          %1: i32 = load own[0]
          %2: i32 = load run[0] if 1 <= b else 0
          %3: i32 = add %1, %2
          barrier block
          run[0] = %3
          pass turn
          y[b] = %3
        } }";
    expect(chain, &(1..=40).collect::<Vec<_>>());
    expect_error(&chain.replace("await turn", "barrier block"), 40, "memory run: threads race for element 0");
    let last = "kernel @k { write y: i32[40] global part: i32[1280] shared s: i32[64] register sum: i32[1]
        block b in 20 {
          thread t in 64 { %0: i64 = index 64*b + t  %1: i32 = cast %0  part[64*b + t] = %1 }
        }
        elect last
        thread t in 40 {
          %2: i32 = const 0
          sum[0] = %2
          for k in 32 { %3: i32 = load part[40*k + t]  sum[0] sum= %3 }
          %4: i32 = load sum[0]
          y[t] = %4
        } }";
    let sums: Vec<i32> = (0..40).map(|t| (0..32).map(|k| 40 * k + t).sum()).collect();
    expect(last, &sums);
    expect_error(&last.replace("elect last", ""), 40, "memory part: threads race for element");
}

/// Sums of floats that nothing orders differ by the order, which is the seed's.
#[test]
fn a_seed_decides_the_order() {
    let text = "kernel @k { write y: f32[1] shared s: f32[1]
        %0: f32 = const 0.0
        s[0] = %0
        barrier block
        warp w in 4 {
          lane l in 1 { %1: i64 = index 16777216*mod(w, 2)*(2 - w) + 1
            %2: f32 = cast %1
            atomic s[0] sum= %2
          }
          barrier block
        }
        %3: f32 = load s[0]
        y[0] = %3 }";
    let by = |seed: u64| run_by(text, 1, seed).expect("it runs")[0];
    let found: std::collections::BTreeSet<i32> = SEEDS.map(by).collect();
    assert!(found.len() > 1, "{found:?}");
    SEEDS.for_each(|seed| assert_eq!(by(seed), by(seed), "seed {seed}"));
}

/// A cluster's blocks run at the same time, and its memory is theirs.
#[test]
fn blocks_of_a_cluster_meet() {
    let text = |meeting: &str| {
        format!(
            "kernel @k {{ write y: i32[8] cluster c: i32[8] shared s: i32[1]
               block b in 8 {{
                 %0: i64 = index b
                 %1: i32 = cast %0
                 s[0] = %1
                 c[b] = %1
                 {meeting}
                 %2: i32 = load c[mod(b + 3, 8)]
                 y[b] = %2
               }} }}"
        )
    };
    expect(&text("barrier cluster"), &[3, 4, 5, 6, 7, 0, 1, 2]);
    expect_error(&text("barrier block"), 8, "memory c: threads race for element");
}

/// Warp 4 hands numbers to warps 0 to 3 through a ring of two buffers, with these acts around its stores and their loads.
fn handed_on(acts: [&str; 4]) -> String {
    let [empty, filled, full, emptied] = acts;
    format!(
        "kernel @k {{ write y: i32[640] ring 0 of 2 filled by warp 4, emptied by warps 0 to 3 shared s: i32[64]
           for k in 5 {{
             {empty}
             warp v in 1 from 4 {{
               lane l in 32 {{ %0: i64 = index 32*k + l  %1: i32 = cast %0  s[32*f + l] = %1 }}
             }}
             {filled}
             {full}
             warp w in 4 {{ lane l in 32 {{ %2: i32 = load s[32*u - l + 31]  y[128*k + 32*w + l] = %2 }} }}
             {emptied}
           }} }}"
    )
}

const RING: [&str; 4] =
    ["acquire empty ring 0 as f", "release full ring 0", "acquire full ring 0 as u", "release empty ring 0"];

#[test]
fn rings_hand_buffers_on_in_order() {
    let expected: Vec<i32> = (0..640).map(|at| 32 * (at / 128) + 31 - at % 32).collect();
    expect(&handed_on(RING), &expected);
    let [empty, filled, full, emptied] = RING;
    // A buffer that is given away while others read it, or taken before it is full.
    let early = "release empty ring 0 acquire full ring 0 as v";
    expect_error(&handed_on([empty, filled, full, ""]), 640, "deadlock: ");
    expect_error(&handed_on([empty, "", full, emptied]), 640, "deadlock: ");
    let early = handed_on([empty, filled, &format!("{full} {early}"), emptied]);
    assert!(SEEDS.clone().all(|seed| run_by(&early, 640, seed).is_err()), "it races, or is stuck at the end");
    expect_error(&handed_on([empty, filled, "", emptied]), 640, "nothing defines");
}

#[test]
fn what_rings_do_not_order_races() {
    let [empty, filled, full, emptied] = RING;
    // The warps that empty a buffer store to it themselves, one of them for the others to read.
    let text = handed_on([empty, filled, full, emptied]).replace(
        "warp w in 4 { lane l in 32 { %2",
        "warp w in 1 { lane l in 32 { %3: i32 = const 7  s[32*u + l] = %3 } } warp w in 4 { lane l in 32 { %2",
    );
    expect_error(&text, 640, "memory s: threads race for element");
    // Behind its last release warp 4 goes on: what it stores then nobody sees who acquired.
    let text = handed_on(RING).replace(
        "release full ring 0",
        "release full ring 0 warp v in 1 from 4 { lane l in 32 { %4: i32 = const 7  s[32*f + l] = %4 } }",
    );
    expect_error(&text, 640, "memory s: threads race for element");
}

#[test]
fn buffers_are_full_when_copies_are_there() {
    let text = "kernel @k { write y: i32[160] ring 0 of 2 filled by warp 1, emptied by warp 0
         shared s: i32[64] shared a: i32[32]
         warp w in 1 from 1 { lane l in 32 { %0: i64 = index l  %1: i32 = cast %0  a[l] = %1 } }
         for k in 5 {
           acquire empty ring 0 as f
           warp w in 1 from 1 { lane l in 32 { copy async 1 a[l] to s[32*f + l] } }
           release full ring 0
           acquire full ring 0 as u
           warp w in 1 { lane l in 32 { %2: i32 = load s[32*u + l]  y[32*k + l] = %2 } }
           release empty ring 0
         } }";
    expect(text, &(0..160).map(|at| at % 32).collect::<Vec<i32>>());
    // What is copied must not change until the copy is there.
    let changed = text.replace(
        "release full ring 0\n",
        "release full ring 0 warp w in 1 from 1 { lane l in 32 { %3: i32 = load a[l]  a[l] = %3 } }\n",
    );
    let races =
        |seed: u64| run_by(&changed, 160, seed).is_err_and(|error| error.to_string().contains("memory a"));
    assert!(SEEDS.clone().any(races), "unless the copies happen to be there");
    // Without the ring, copies are under way when the buffer is read.
    let ahead = text.replace("acquire full ring 0 as u", "barrier block").replace("release empty ring 0", "");
    assert!(run_by(&ahead.replace("32*u", "32*mod(k, 2)"), 160, 0).is_err());
}

#[test]
fn some_warps_meet_alone() {
    let text = |barrier: &str| {
        format!(
            "kernel @k {{ write y: i32[96] shared s: i32[64]
               warp w in 2 {{ lane l in 32 {{ %0: i64 = index 32*w + l  %1: i32 = cast %0  s[32*w + l] = %1 }} }}
               {barrier}
               warp w in 2 {{ lane l in 32 {{ %2: i32 = load s[63 - 32*w - l]  y[32*w + l] = %2 }} }}
               warp w in 1 from 2 {{ lane l in 32 {{ %3: i32 = const 5  y[64 + l] = %3 }} }}
             }}"
        )
    };
    let expected: Vec<i32> = (0..96).map(|at| if at < 64 { 63 - at } else { 5 }).collect();
    expect(&text("barrier warps 0 to 1"), &expected);
    expect_error(&text("barrier warp 0"), 96, "memory s: threads race for element");
    expect_error(&text("barrier warps 1 to 2"), 96, "memory s: threads race for element");
}
