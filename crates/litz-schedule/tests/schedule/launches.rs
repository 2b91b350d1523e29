//! Kernels that are launched together.

use crate::{plans, target};
use litz_analysis::legality;
use litz_ir::graph::Device;
use litz_ir::loops::Loops;
use litz_ir::target::Target;
use litz_schedule::{Heuristics, Outcome, Request};

/// The schedule where so many kernels may be launched together, proved.
#[track_caller]
fn together(loops: &Loops, target: &Target, launch_together: usize) -> Outcome {
    together_but(loops, target, launch_together, &[])
}

/// As [`together`], where these nests begin kernels.
#[track_caller]
fn together_but(loops: &Loops, target: &Target, launch_together: usize, apart: &[&str]) -> Outcome {
    let heuristics = Heuristics { launch_together, ..Heuristics::default() };
    let apart = apart.iter().map(|nest| (*nest).to_owned()).collect();
    let request = Request { apart: &apart, ..Request::new(target, &heuristics) };
    let outcome = litz_schedule::schedule_as(loops, &request);
    let diags = legality::verify(&outcome.schedule, loops);
    assert!(diags.is_empty(), "{}\n{}", diags[0], outcome.schedule);
    outcome
}

/// The nests of each launch.
fn launches(outcome: &Outcome) -> Vec<Vec<&str>> {
    plans(outcome).map(|plan| plan.nests()).collect()
}

/// `relu` of so many tensors, each of other sizes, in loops.
fn relus(count: usize) -> Loops {
    let (mut bufs, mut nests, mut results) = (String::new(), String::new(), Vec::new());
    for at in 0..count {
        let size = match at % 3 {
            0 => format!("{}, 7", at + 3),
            1 => format!("{}", 1000 * at),
            _ => format!("s{}", at % 2),
        };
        let dims = size.split(", ").count();
        let axes = ["i", "j"].iter().zip(size.split(", ")).map(|(axis, size)| format!("{axis} in {size}"));
        let (axes, index) = (axes.collect::<Vec<_>>().join(", "), ["i", "j"][..dims].join(", "));
        let dtype = ["f32", "f64", "i32", "i64"][at % 4];
        bufs += &format!("buf x{at}: {dtype}[{size}] = input buf y{at}: {dtype}[{size}] ");
        nests += &format!(
            "nest n{at} from %r{at} [{axes}] {{ %0: {dtype} = load x{at}[{index}] %1: {dtype} = const 0{}
             %2: {dtype} = max %0, %1 store y{at}[{index}] = %2 }} ",
            if dtype.starts_with('f') { ".0" } else { "" }
        );
        results.push(format!("y{at}"));
    }
    let syms = "sym s0 in [0, 100000] hint 300 sym s1 in [2, 100000] hint 9000";
    crate::loops(&format!("{syms} {bufs} {nests} return {}", results.join(", ")))
}

/// SC-14: 20 independent relus of different sizes and types, some not known, are 3 launches, or 20.
#[test]
fn small_kernels_share_launches() {
    let loops = relus(20);
    let on = together(&loops, &target(), 8);
    assert_eq!(launches(&on).iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 4], "{}", on.schedule);
    assert_eq!(launches(&together(&loops, &target(), 1)).len(), 20);
    assert_eq!(launches(&together(&loops, &target(), 0)).len(), 20, "it is off");
    let alone: Target = "cpu(isa=avx512, threads=1)".parse().expect("a target");
    assert_eq!(launches(&together(&loops, &alone, 8)).len(), 20, "one thread has nothing to share");
}

/// SC-15: a kernel whose size data decides shares a launch with what runs behind that as well, and takes as long as its hint says.
#[test]
fn a_size_that_data_decides_is_one_of_a_launch() {
    let of = |hint: &str| {
        let relu = |name: &str, size: &str, to: &str| {
            format!(
                "nest {name} [i in {size}] {{ %0: f32 = load x[i] %1: f32 = const 0.0 %2: f32 = max %0, %1 store {to}[i] = %2 }}"
            )
        };
        crate::loops(&format!(
            "sym u0 in [0, 5000000]{hint} buf x: f32[5000000] = input buf n: i64[] = input buf a: f32[40] buf b: f32[u0] buf c: f32[50]
             size u0 = n {} {} {} return a, b, c",
            relu("na", "40", "a"),
            relu("nb", "u0", "b"),
            relu("nc", "50", "c")
        ))
    };
    let together = |hint: &str| {
        let outcome = together(&of(hint), &target(), 8);
        let mut sizes: Vec<usize> = launches(&outcome).iter().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(together(""), [3]);
    assert_eq!(together(" hint 300"), [3]);
    assert_eq!(together(" hint 5000000"), [1, 2]);
}

#[test]
fn launches_are_of_one_device() {
    let mut loops = relus(6);
    for (at, stmt) in loops.stmts.iter().enumerate() {
        for buf in stmt.reads().into_iter().chain(stmt.writes()) {
            loops.bufs[buf].device = Device::Cuda(u32::from(at >= 4));
        }
    }
    let outcome = together(&loops, &target(), 8);
    assert_eq!(launches(&outcome).iter().map(Vec::len).collect::<Vec<_>>(), [4, 2], "{}", outcome.schedule);
}

/// A list of ten sums and one of what is multiplied with them, of so many times 10 elements and more. The fifth product's other factor is
/// what `factor` says, of the sum or product before.
fn pairs(scale: usize, factor: &str) -> Loops {
    let [mut bufs, mut sums, mut products] = [const { String::new() }; 3];
    let mut results = Vec::new();
    for at in 0..10 {
        let size = scale * (10 + 3 * (at / 2));
        let other = if at == 5 { factor.to_owned() } else { format!("w{at}[i]") };
        bufs += &format!(
            "buf x{at}: f32[{size}] = input buf w{at}: f32[{size}] = input buf s{at}: f32[{size}] buf y{at}: f32[{size}] "
        );
        let nest = |name: &str, loads: [&str; 2], op: &str, to: &str| {
            format!(
                "nest {name} from %{op}_of_list [i in {size}] {{ %0: f32 = load {} %1: f32 = load {}
                 %2: f32 = {op} %0, %1 store {to}[i] = %2 }} ",
                loads[0], loads[1]
            )
        };
        sums +=
            &nest(&format!("a{at}"), [&format!("x{at}[i]"), &format!("w{at}[i]")], "add", &format!("s{at}"));
        products += &nest(&format!("m{at}"), [&format!("s{at}[i]"), &other], "mul", &format!("y{at}"));
        results.push(format!("y{at}"));
    }
    crate::loops(&format!("{bufs} {sums} {products} return {}", results.join(", ")))
}

/// SC-13: ten sums and the products of them are one launch of ten parts; where one waits for another's result, two.
#[test]
fn chains_of_elements_share_a_launch() {
    let one = together(&pairs(1, "w5[i]"), &target(), 10);
    let chains: Vec<String> = (0..10).flat_map(|at| [format!("a{at}"), format!("m{at}")]).collect();
    assert_eq!(launches(&one), [chains.iter().map(String::as_str).collect::<Vec<_>>()], "{}", one.schedule);
    let two = together_but(&pairs(1, "y4[-i + 15]"), &target(), 10, &["m5"]);
    let launches = launches(&two);
    assert_eq!(launches.len(), 2, "{}", two.schedule);
    assert!(launches[0].contains(&"m4") && launches[1].contains(&"m5"), "{}", two.schedule);
}

/// SW-3: of two lists each element is a chain, and all of them are one launch, whatever the option says. Where one waits for another's result
/// at points of other threads, they are two.
#[test]
fn lists_that_wait_for_an_element_are_two_launches() {
    let of = |factor: &str| {
        let outcome = together(&pairs(4000, factor), &target(), 1);
        launches(&outcome).iter().map(|nests| nests.join(" ")).collect::<Vec<_>>()
    };
    let chains =
        |range: std::ops::Range<usize>| range.map(|at| format!("a{at} m{at}")).collect::<Vec<_>>().join(" ");
    assert_eq!(of("w5[i]"), [chains(0..10)]);
    assert_eq!(of("y4[-i + 63999]"), [chains(0..5), chains(5..10)]);
}

/// A chain that can run in the kernel of what it waits for is in its part, and there is nothing to wait for.
#[test]
fn an_element_of_another_chain_joins_it() {
    for factor in ["y4[i]", "y4[-i + 15]"] {
        let one = together(&pairs(1, factor), &target(), 10);
        assert_eq!(launches(&one).len(), 1, "{}", one.schedule);
        assert_eq!(launches(&one)[0].len(), 20);
    }
}

/// What something in between depends on has run before it, and does not share a launch with what comes behind.
#[test]
fn launches_wait_for_each_other_in_no_circle() {
    let loops = crate::loops(
        "buf x: f32[40] = input buf z: f32[50] = input
         buf a: f32[40] buf b: f32[40] buf c: f32[50] buf d: f32[50] buf e: f32[40]
         nest na [i in 40] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }
         nest nb [i in 40] { %0: f32 = load a[-i + 39] store b[i] = %0 }
         nest nc [i in 50] { %0: f32 = load z[i] %1: f32 = sin %0 store c[i] = %1 }
         nest nd [i in 50] { %0: f32 = load c[-i + 49] store d[i] = %0 }
         nest ne [i in 40] { %0: f32 = load b[-i + 39] %1: f32 = load d[i] %2: f32 = add %0, %1 store e[i] = %2 }
         return e",
    );
    let outcome = together_but(&loops, &target(), 8, &["nb", "nc", "nd", "ne"]);
    assert_eq!(launches(&outcome), [vec!["nc", "na"], vec!["nd", "nb"], vec!["ne"]], "{}", outcome.schedule);
}

/// On a GPU a small kernel joins the first of the last launches that it depends on nothing in: what follows the first of two chains comes behind
/// both of their beginnings. Blocks along two axes are digits of those of the launch, where all are whole.
#[test]
fn chains_on_a_gpu_go_side_by_side() {
    let of = |columns: usize| {
        let chain = |name: &str, rows: usize| {
            format!(
                "nest {name}a [i in {rows}, j in {columns}] {{ %0: f32 = load {name}[i, j] %1: f32 = exp %0 store {name}s[i, j] = %1 }}
                 nest {name}b [i in {rows}, j in {columns}] {{ %0: f32 = load {name}s[-i + {}, j] %1: f32 = load c[j] %2: f32 = mul %0, %1 store {name}t[i, j] = %2 }} ",
                rows - 1
            )
        };
        let bufs = |name: &str, rows: usize| {
            format!(
                "buf {name}: f32[{rows}, {columns}] = input buf {name}s: f32[{rows}, {columns}] buf {name}t: f32[{rows}, {columns}] "
            )
        };
        crate::loops(&format!(
            "{}{} buf c: f32[{columns}] = input {}{} return xt, yt",
            bufs("x", 32),
            bufs("y", 8),
            chain("x", 32),
            chain("y", 8)
        ))
    };
    let gpu: Target = "gpu(isa=sm90, units=132)".parse().expect("a target");
    let whole = together_but(&of(64), &gpu, 0, &["xb", "yb"]);
    assert_eq!(launches(&whole), [vec!["xa", "ya"], vec!["xb", "yb"]], "{}", whole.schedule);
    // Where the last block of a row has fewer, digits of both would not be proved.
    let parts = together_but(&of(72), &gpu, 0, &["xb", "yb"]);
    assert_eq!(launches(&parts).len(), 3, "{}", parts.schedule);
}

/// Of a kernel that takes long, its launch is nothing.
#[test]
fn large_kernels_have_their_own_launches() {
    let body = |size: usize| {
        format!(
            "buf x: f32[{size}] = input buf z: f32[30] = input buf a: f32[{size}] buf b: f32[30]
             nest na [i in {size}] {{ %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }}
             nest nb [i in 30] {{ %0: f32 = load z[i] %1: f32 = exp %0 store b[i] = %1 }}
             return a, b"
        )
    };
    assert_eq!(launches(&together(&crate::loops(&body(100_000)), &target(), 8)).len(), 1);
    assert_eq!(launches(&together(&crate::loops(&body(1_000_000)), &target(), 8)).len(), 2);
}

#[test]
fn schedules_do_not_depend_on_the_number_of_threads() {
    let (loops, target, heuristics) = (relus(40), target(), Heuristics::default());
    let on = |threads: usize| {
        let request = Request { threads, ..Request::new(&target, &heuristics) };
        litz_schedule::schedule_as(&loops, &request).schedule.to_string()
    };
    let alone = on(1);
    for threads in [2, 3, 64] {
        assert_eq!(on(threads), alone, "{threads} threads");
    }
}

/// Forty counts that are raised and what each of them scales: the order of least memory would have one behind the other, but lists stay
/// together, in two launches each. Where what is scaled is large and passed on, memory decides.
#[test]
fn lists_stay_together() {
    let of = |count: usize, size: usize| {
        let (mut bufs, mut nests, mut updates) = (String::new(), String::new(), String::new());
        for at in 0..40 {
            bufs += &format!(
                "buf c{at}: f32[{count}] = input buf x{at}: f32[{size}] = input buf t{at}: f32[{count}] "
            );
            nests += &format!(
                "nest a{at} from %count [i in {count}] {{ %0: f32 = load c{at}[i] %1: f32 = exp %0 store t{at}[i] = %1 }}
                 nest b{at} from %scaled [i in {size}] {{ %0: f32 = load x{at}[i] %1: f32 = load t{at}[{}] %2: f32 = mul %0, %1
                 store x{at}[i] = %2 }} ",
                count - 1
            );
            updates += &format!("update x{at} = x{at} ");
        }
        crate::loops(&format!("{bufs} {nests} {updates} return"))
    };
    let sizes = |loops: &Loops| -> Vec<usize> {
        launches(&together(loops, &target(), 1)).iter().map(Vec::len).collect()
    };
    assert_eq!(sizes(&of(1, 100_000)), [32, 8, 32, 8]);
    assert_eq!(sizes(&of(100_000, 100_000)), [1; 80]);
}
