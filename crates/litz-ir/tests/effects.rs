//! PR-4: every kind of step: its text, what it does, and a program that is wrong in it.

use litz_ir::program::{Access, Effects, Program, Runs, accesses, accesses_of};
use litz_ir::{text, verify};

/// What all programs here begin with.
const HEAD: &str = "program @p on ref:0 {
  sym u0 in [0, 8]
  program @f on ref:0 {
    param y: f32[8]
    return y: f32[8]
  }
  param x: f32[8]
  param on: f32[8] on cpu
  param c: bool[1]
  const w: f32[8] = \"w\"
  alloc a: f32[8]
  alloc b: f32[8]
  alloc n: i64[1] on cpu
  extern fill() -> (n)
";

/// `x` is read, `y` written, `z` read and written, `u` reused in place.
const KERNEL: &str = "kernel @k {
  read x: f32[8]
  write y: f32[8]
  write z: f32[8]
  update u: f32[8]
  grid p in 8
  %0: f32 = load x[p]
  %1: f32 = load z[p]
  %2: f32 = load u[p]
  %3: f32 = add %0, %1
  %4: f32 = add %3, %2
  y[p] = %4
  z[p] = %4
  u[p] = %4
}
";

/// A step: its text as it is printed; what it reads, writes, gives memory or a value, frees, and who runs it; what breaks where it is put
/// behind [`HEAD`], and how it reads then.
struct Kind {
    text: &'static str,
    before: &'static str,
    reads: &'static [&'static str],
    writes: &'static [&'static str],
    defines: &'static str,
    frees: &'static str,
    runs: &'static str,
    wrong: (&'static str, &'static str),
}

const NOTHING: Kind = Kind {
    text: "",
    before: "",
    reads: &[],
    writes: &[],
    defines: "",
    frees: "",
    runs: "nothing",
    wrong: ("", ""),
};

const KINDS: [Kind; 13] = [
    Kind {
        text: "check u0 <= 7 for \"x: size 0\"",
        before: "size u0 = n",
        wrong: ("check u1 <= 7 for \"who\"", "undeclared-symbol"),
        ..NOTHING
    },
    Kind { text: "alloc d: f32[8]", defines: "d", wrong: ("alloc a: f32[8]", "double-alloc"), ..NOTHING },
    Kind {
        text: "view d: f32[4] = a + 16",
        defines: "d",
        wrong: ("view d: f32[4] = a + 20", "view-overflow"),
        ..NOTHING
    },
    Kind {
        text: "launch @k(x, a, w, b)",
        reads: &["x", "w", "b"],
        writes: &["a", "w", "b"],
        runs: "ref:0 stream 0",
        wrong: ("free a launch @k(x, a, w, b)", "use-after-free"),
        ..NOTHING
    },
    Kind {
        text: "launch @unknown(x, a) stream 2",
        writes: &["x", "a"],
        runs: "ref:0 stream 2",
        wrong: ("launch @unknown(d)", "undefined-slot"),
        ..NOTHING
    },
    Kind {
        text: "copy on -> a",
        reads: &["on"],
        writes: &["a"],
        runs: "ref:0 stream 0",
        wrong: ("copy a -> b", "use-before-write"),
        ..NOTHING
    },
    Kind {
        text: "record event 3 on cpu",
        runs: "cpu stream 0",
        wrong: ("record event 3 record event 3", "event"),
        ..NOTHING
    },
    Kind {
        text: "wait event 3",
        before: "record event 3",
        runs: "ref:0 stream 0",
        wrong: ("wait event 4", "event"),
        ..NOTHING
    },
    Kind {
        text: "extern sort(x, w) -> (a, b) ints(1, 2) for \"model.py:3\"",
        reads: &["x", "w"],
        writes: &["a", "b"],
        runs: "host",
        wrong: ("extern sort(a) -> (b)", "use-before-write"),
        ..NOTHING
    },
    Kind {
        text: "size u0 = n for \"model.py:4\"",
        reads: &["n"],
        defines: "u0",
        runs: "host",
        wrong: ("size u0 = on", "type-mismatch"),
        ..NOTHING
    },
    Kind {
        text: "branch on c then @f(x) else @f(w) -> (a)",
        reads: &["c", "x", "w"],
        writes: &["a"],
        runs: "host",
        wrong: ("branch on c then @f(x) else @g(w) -> (a)", "unknown-function"),
        ..NOTHING
    },
    Kind {
        text: "call mylib.foo.default(x as f32[8], update w as f32[4]{2}, [7, none, \"text\"]) -> (a as f32[8], _)",
        reads: &["x", "w"],
        writes: &["a", "w"],
        runs: "host",
        wrong: ("call mylib.foo.default(a as f32[8]) -> (b as f32[8])", "use-before-write"),
        ..NOTHING
    },
    Kind { text: "free a", frees: "a", wrong: ("free x", "free-of-param"), ..NOTHING },
];

fn program(steps: &str) -> Program {
    let text = format!("{HEAD} {steps} return on: f32[8] on cpu }}");
    text::program::parse(&text).unwrap_or_else(|diags| panic!("{steps}: {diags:?}"))
}

#[test]
fn every_step_says_what_it_does() {
    let kernel = text::kernel::parse(KERNEL).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernels = [kernel];
    let accesses = accesses_of(&kernels);
    for Kind { text, before, reads, writes, defines, frees, runs, wrong: _ } in KINDS {
        let program = program(&format!("{before} {text}"));
        assert!(program.to_string().contains(&format!("  {text}\n")), "{program}");
        let step = program.steps.last().expect("there is one");
        let name = |slot| program.slots[slot].name.as_str();
        let effects = program.effects(step, &accesses);
        assert_eq!(effects.reads().map(name).collect::<Vec<_>>(), *reads, "{text}");
        let mut written: Vec<&str> = effects.writes().map(name).collect();
        written.sort_by_key(|slot| writes.iter().position(|write| write == slot));
        assert_eq!(written, *writes, "{text}");
        let defined = effects.memory.map(name).map(str::to_owned);
        let defined = defined.or(effects.size.map(|sym| sym.to_string())).unwrap_or_default();
        assert_eq!(defined, defines, "{text}");
        assert_eq!(effects.frees.map_or("", name), frees, "{text}");
        let run_by = match effects.runs {
            Runs::Nothing => "nothing".to_owned(),
            Runs::Host => "host".to_owned(),
            Runs::On(queue) => format!("{} stream {}", queue.device, queue.stream),
        };
        assert_eq!(run_by, runs, "{text}");
    }
}

#[test]
fn every_step_can_be_wrong() {
    for Kind { before, wrong: (text, slug), .. } in KINDS {
        let full = format!("{HEAD} {before} {text} return on: f32[8] on cpu }}");
        let diags = match text::program::parse(&full) {
            Ok(program) => verify::program::verify(&program),
            Err(diags) => diags,
        };
        let found: Vec<&str> = diags.iter().map(|diag| diag.slug).collect();
        assert_eq!(found, [slug], "{text}: {diags:?}");
    }
}

#[test]
fn every_kind_of_step_is_here() {
    let mut kinds: Vec<&str> = KINDS
        .iter()
        .map(|Kind { before, text, .. }| {
            program(&format!("{before} {text}")).steps.last().expect("there is one").kind()
        })
        .collect();
    kinds.dedup();
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}

#[test]
fn a_kernel_that_loads_first_reads_what_was_there() {
    let kernel = |body: &str| {
        let text = format!("kernel @k {{ read x: f32[8] write y: f32[8] grid p in 8 {body} }}");
        let kernel = text::kernel::parse(&text).unwrap_or_else(|diags| panic!("{diags:?}"));
        accesses(&kernel)
    };
    assert_eq!(kernel("%0: f32 = load x[p] y[p] = %0"), [Access::Read, Access::Write]);
    assert_eq!(kernel("%0: f32 = load y[p] y[p] = %0"), [Access::Read, Access::Update]);
    let later = "%0: f32 = load x[p] y[p] = %0 %1: f32 = load y[p] y[p] = %1";
    assert_eq!(kernel(later), [Access::Read, Access::Write]);
    assert_eq!(kernel("%0: f32 = load x[p]"), [Access::Read, Access::Write]);
}

/// What is wrong with a program whose steps launch the kernel, or copy.
#[track_caller]
fn found(steps: &str) -> Vec<String> {
    let text = format!(
        "program @p on cpu {{ param x: f32[8] param d: f32[8] donated const w: f32[8] = \"w\" alloc y: f32[8]
         alloc pool: u8[64] view a: f32[8] = pool + 0 view b: f32[8] = pool + 0 alloc empty: f32[0] {steps} }}"
    );
    let program = text::program::parse(&text).unwrap_or_else(|diags| panic!("{diags:?}"));
    let copies = "kernel @k { read x: f32[8] write y: f32[8] grid p in 8 %0: f32 = load x[p] y[p] = %0 }";
    let adds =
        "kernel @add { read x: f32[8] write y: f32[8] grid p in 8 %0: f32 = load x[p] %1: f32 = load y[p]
                %2: f32 = add %0, %1 y[p] = %2 }";
    let kernels =
        [copies, adds].map(|text| text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}")));
    let diags = verify::program::verify_with(&program, &kernels);
    diags.into_iter().map(|diag| diag.to_string()).collect()
}

#[test]
fn what_nothing_has_written_is_not_read() {
    let y = "return y: f32[8]";
    let message = |slot: &str, place: &str| {
        [format!("error[use-before-write]: {place}: reads `{slot}`, which nothing has written")]
    };
    assert!(found(&format!("launch @k(x, y) {y}")).is_empty());
    assert_eq!(found(y), message("y", "the end of a call"));
    assert_eq!(found(&format!("launch @k(a, y) {y}")), message("a", "launch of @k"));
    // It adds to what is there.
    assert_eq!(found(&format!("launch @add(x, y) {y}")), message("y", "launch of @add"));
    assert!(found(&format!("launch @k(x, y) launch @add(w, y) {y}")).is_empty());
    // What is at the same place is something else.
    assert_eq!(found(&format!("launch @k(x, a) launch @k(b, y) {y}")), message("b", "launch of @k"));
    assert_eq!(found(&format!("view e: f32[8] = d + 0 launch @k(e, y) {y}")), message("e", "launch of @k"));
    assert!(found(&format!("launch @k(d, y) {y}")).is_empty());
    // Parts of a whole, and what a whole gives its parts.
    let whole = found("view h: f32[4] = y + 0 copy x -> y launch @k(h, a) return y: f32[8]");
    assert!(whole.iter().all(|message| message.starts_with("error[shared-memory]")), "{whole:?}");
    assert!(found("view h: f32[4] = y + 0 extern fill() -> (h) return y: f32[8]").is_empty());
    // Nothing is there to be written.
    assert!(found("return empty: f32[0]").is_empty());
    assert_eq!(found("update x = a return w: f32[8]"), message("a", "the end of a call"));
}

#[test]
fn effects_of_nothing_are_none() {
    assert_eq!(Effects::default().reads().chain(Effects::default().writes()).count(), 0);
    assert_eq!(Effects::default().runs, Runs::Nothing);
}
