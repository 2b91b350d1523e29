//! Checks each verifier rule: canonical texts pass, and an edit that breaks one rule is reported under its slug alone.

mod texts;

use std::collections::BTreeSet;

use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Stmt, Val};
use litz_ir::{Diags, Dtype, graph, kernel, loops, program, text, verify};
use texts::{Item, text, texts};

/// What is wrong with a text.
fn problems(text: &str) -> Diags {
    match Item::parse(text) {
        Err(diags) => diags,
        Ok(Item::Graph(graph)) => verify::graph::verify(&graph),
        Ok(Item::Loops(loops)) => verify::loops::verify(&loops),
        Ok(Item::Kernel(kernel)) => verify::kernel::verify(&kernel),
        Ok(Item::Program(program)) => verify::program::verify(&program),
        // What a schedule says is checked against loops, by litz-analysis.
        Ok(Item::Schedule(_)) => Diags::new(),
    }
}

fn slugs(diags: &Diags) -> BTreeSet<&'static str> {
    diags.iter().map(|diag| diag.slug).collect()
}

/// For each (slug, from, to), checks that replacing `from` by `to` in a canonical text breaks exactly that rule.
#[track_caller]
fn breaks(name: &str, rules: &[(&str, &str, &str)]) {
    let text = text(name);
    let mut failures = String::new();
    for &(slug, from, to) in rules {
        assert!(text.contains(from), "{name} has no `{from}`");
        let diags = problems(&text.replacen(from, to, 1));
        if slugs(&diags).into_iter().ne([slug]) {
            failures += &format!("expected only `{slug}` from `{from}` => `{to}`\n");
            failures.extend(diags.iter().map(|diag| format!("    {diag}\n")));
        }
    }
    assert!(failures.is_empty(), "{name}\n{failures}");
}

#[test]
fn canonical_texts_are_valid() {
    for (name, text) in texts() {
        let diags = problems(&text);
        assert!(diags.is_empty(), "{name}: {}", diags[0]);
    }
}

#[test]
fn graph_rules() {
    breaks(
        "graph_mlp",
        &[
            ("symbol-name", "sym s0", "sym f32 in [1, 2]\n sym s0"),
            ("empty-range", "[2, 1024]", "[2, 1]"),
            ("undeclared-symbol", "f32[s0, 768]", "f32[s1, 768]"),
            ("undeclared-symbol", "[1, 0]", "[1, s1]"),
            ("undeclared-symbol", "%x:", "%n: int(2*s1) = input %x:"),
            ("undeclared-symbol", "{1, 768}", "{1, s1}"),
            ("duplicate-name", "return %v, %i", "%v: f32[s0, 768] = aten.neg.default(%x) return %v"),
            ("duplicate-name", "%w: f32", "%x: f32[s0, 768] = input %w: f32"),
            ("stride-rank", "{1, 768}", "{1}"),
            ("negative-size", "f32[3072] =", "f32[-1]{1} ="),
            ("undefined-value", "return %v", "return %nothing"),
            ("update-target", "return", "update %h = %h return"),
            ("update-type", "return", "update %x = %h return"),
            ("update-type", "return", "update %x = %i return"),
            ("update-type", "return", "%host: f32[s0, 768] on cuda:0 = input update %x = %host return"),
            ("duplicate-update", "return", "update %x = %x update %x = %x return"),
        ],
    );
    breaks("graph_mlp", &[("undefined-value", "gelu.default(%h", "gelu.default(%g")]);
    breaks("graph_control_flow", &[("unknown-graph", "@else,", "@inner,")]);
    breaks(
        "graph_control_flow",
        &[("duplicate-name", "graph @else on", "graph @then on cpu { return } graph @else on")],
    );
}

#[test]
fn host_rules() {
    breaks(
        "graph_host",
        &[
            ("duplicate-name", "op mylib.log", "op mylib.foo.default() -> () op mylib.log"),
            ("undeclared-symbol", "(%y, %z2, s0)", "(%y, %z2, s1)"),
            ("node-form", "functional mylib.foo", "mylib.foo"),
            ("node-form", "= mylib.foo.default(%y", "= functional mylib.foo.default(%y"),
            ("node-form", "host aten.add", "functional aten.add"),
            ("node-form", "(%x, %z, 7)", "(%x, %z)"),
            ("node-form", "_ = other", "_, _ = other"),
        ],
    );
    breaks(
        "loops_host",
        &[
            ("unwritten-buffer", "x as [s0, 4]) -> ()", "late as [4]) -> () extern n4 = host f() -> (late)"),
            ("undeclared-symbol", "s0 + 1,", "s1 + 1,"),
            ("out-of-bounds", "{2} + 1", "{2} + 2"),
            ("out-of-bounds", "x as [s0, 4]", "x as [s0, 5]"),
            ("stride-rank", "x as [s0, 4]", "x as [s0, 4]{4}"),
            ("written-argument", "x as [4, s0]{1, 4}", "\"update\" as [4]"),
            ("written-argument", "(y, _)", "(y, y)"),
            ("writes-input", "log.default(x as", "log.default(update x as"),
            ("device", "\"odd name\": i64[]", "\"odd name\": i64[] on cuda:0"),
        ],
    );
    breaks(
        "program_host",
        &[
            ("undeclared-symbol", "[7, none", "[s1, none"),
            ("view-overflow", "f32[2]{2} + 1", "f32[2]{2} + 2"),
            ("view-overflow", "f32[2]{2} + 1", "f32[2]{2} + -1"),
            ("type-mismatch", "f32[2]{2} + 1", "i32[2]{2} + 1"),
            ("stride-rank", "x as f32[4, s0]{1, 4}", "x as f32[4, s0]{1}"),
            ("written-argument", "x as f32[4, s0]{1, 4}", "out as f32[2]"),
            ("written-argument", "(y as f32[s0, 4], _)", "(y as f32[s0, 4], y as f32[s0, 4])"),
            ("device", "(x as f32[4, s0]{1, 4}", "(x as f32[4, s0]{1, 4} on cuda:0"),
        ],
    );
}

#[test]
fn rules_of_what_the_host_shares_and_decides() {
    breaks(
        "graph_parts",
        &[
            ("node-form", "part(0, [4], [1], 0)", "part(2, [4], [1], 0)"),
            ("node-form", "part(0, [4], [1], 0)", "%z"),
            ("node-form", ", [%x, %z])", ")"),
            ("node-form", "[%x, %z])", "[%x, 7])"),
            ("node-form", "functional mylib", "mylib"),
            ("undeclared-symbol", "4*s0 - 4", "4*s1 - 4"),
            ("stride-rank", "part(0, [4], [1], 0)", "part(0, [4], [1, 1], 0)"),
        ],
    );
    breaks(
        "loops_shared",
        &[
            ("written-argument", " sharing y", ""),
            ("written-argument", "-> () sharing y", "-> (y) sharing y"),
            ("shared-argument", "sharing y", "sharing y, z"),
            ("out-of-bounds", "[2, 4] + 4", "[2, 4] + 9"),
            ("size-operand", "of f32, _)", "of f32, sizes odd of f32)"),
            ("undefined-size", "(y as [16])", "(y as [16], u0)"),
        ],
    );
    breaks(
        "program_shared",
        &[
            ("written-argument", " sharing y", ""),
            ("size-operand", "sizes as i64[2] of f32", "sizes as i64[1, 2] of f32"),
            ("view-overflow", "f32[2, 4] + 4", "f32[2, 4] + 9"),
        ],
    );
}

#[test]
fn the_host_may_write_parts_that_are_apart() {
    let (text, from) = (text("program_host"), "x as f32[4, s0]{1, 4}");
    assert!(text.contains(from), "{text}");
    assert_eq!(problems(&text.replacen(from, "out as f32[1]", 1)), []);
}

#[test]
fn a_declaration_that_says_what_no_schema_does_is_found() {
    let mut graph = text::graph::parse(&text("graph_host")).expect("canonical text parses");
    graph.ops[0].schema.args[2].name = "n, int m".into();
    assert_eq!(slugs(&verify::graph::verify(&graph)), BTreeSet::from(["declaration"]));
    let mut graph = text::graph::parse(&text("graph_host")).expect("canonical text parses");
    graph.ops[0].schema.args[2].default = Some(graph::Arg::Str("\"".into()));
    assert_eq!(slugs(&verify::graph::verify(&graph)), BTreeSet::from(["declaration"]));
}

#[test]
fn graph_rules_on_built_data() {
    let parse = || text::graph::parse(&text("graph_mlp")).expect("canonical text parses");
    let mut graph = parse();
    graph.nodes.swap(0, 1);
    let diags = verify::graph::verify(&graph);
    assert_eq!(slugs(&diags), BTreeSet::from(["undefined-value"]));
    assert_eq!(diags[0].source.as_deref(), Some("mlp.py:12"));
    let mut graph = parse();
    graph.inputs.push(graph.inputs[0]);
    assert!(slugs(&verify::graph::verify(&graph)).contains("redefined-value"));
    let mut graph = parse();
    graph.outputs.push(graph::Arg::Value(graph::Value(99)));
    graph.updates.push((graph::Value(99), graph::Value(98)));
    assert!(slugs(&verify::graph::verify(&graph)).contains("undefined-value"));
}

#[test]
fn subgraphs_see_symbols_and_subgraphs_around_them() {
    let text = "graph @g on cpu { sym s0 in [1, 2] graph @a on cpu { return }
        graph @b on cpu { %x: f32[s0] = input f(@a) return s0 } return }";
    assert_eq!(problems(text), []);
    let text = "graph @g on cpu { %x: f32[] = input graph @b on cpu { return %x } return }";
    assert_eq!(slugs(&problems(text)), BTreeSet::from(["undefined-value"]));
}

#[test]
fn loops_rules() {
    breaks(
        "loops_product",
        &[
            ("symbol-name", "sym s0", "sym cpu in [1, 2]\n sym s0"),
            ("empty-range", "[2, 1024]", "[2, 1]"),
            ("undeclared-symbol", "buf b: f32[3072]", "buf b: f32[s1]"),
            ("undeclared-symbol", "i in s0, j in 3072", "i in s0, j in i"),
            ("undeclared-symbol", "load b[j]", "load b[k]"),
            ("undeclared-symbol", "load b[j]", "load b[j] if j < t else 0.0"),
            ("undeclared-symbol", "return y", "return int(i)"),
            ("duplicate-symbol", "i in s0, j in 3072", "s0 in s0, i in s0, j in 3072"),
            ("duplicate-symbol", "i in s0, j in 3072", "i in s0, i in 1, j in 3072"),
            ("duplicate-name", "buf h:", "buf b: f32[3072] = input buf h:"),
            ("duplicate-name", "nest n1", "nest n0"),
            ("stride-rank", "return y", "return y as [s0]{1, 1}"),
            ("negative-size", "k in 768]", "k in -768]"),
            ("unwritten-buffer", "load b[j]", "load y[i, j]"),
            ("unwritten-buffer", "store wp[", "store.sum wp["),
            ("partial-store", "i in s0, j in 3072", "i in s0, j in 3071"),
            ("partial-store", "store y[i, j]", "store y[i, 0]"),
            ("writes-input", "store y[i, j]", "store x[i, 0] = %0 store y[i, j]"),
            ("operand-count", "max %2, %3", "max %2, %3, %3"),
            ("operand-count", "mul %0, %1", "mul %0"),
            ("type-mismatch", "%2: f32 = mul", "%2: f64 = mul"),
            ("type-mismatch", "mul %0, %1", "and %0, %1"),
            ("type-mismatch", "mul %0, %1", "lt %0, %1"),
            ("type-mismatch", "mul %0, %1", "select %0, %0, %1"),
            ("type-mismatch", "reduce.sum", "reduce.any"),
            ("type-mismatch", "reduce.sum", "reduce.argmax"),
            ("type-mismatch", "%0: f32 = load h", "%0: f64 = load h"),
            ("type-mismatch", "load b[j]", "index j"),
            ("type-mismatch", "load b[j]", "cond j < 3"),
            ("type-mismatch", "add %0, %1", "add %0, %1 %2a: f16 = bitcast %2"),
            ("type-mismatch", "const 0.0", "const 0.0 bind t = %0 in 3"),
            ("literal-type", "const 0.0", "const 0"),
            ("literal-type", "const 0.0", "const true"),
            ("literal-type", "const 0.0", "const 0.0 %u: u8 = const 256"),
            ("literal-type", "const 0.0", "const 0.0 %u: i8 = const -129"),
            ("literal-type", "load b[j]", "load b[j] if j < 3 else 0"),
            ("out-of-bounds", "load b[j]", "load b[j + 3072]"),
            ("out-of-bounds", "load b[j]", "load b[-j - 1]"),
            ("index-rank", "load b[j]", "load b[0, j]"),
            ("index-rank", "store y[i, j]", "store y[3072*i + j]"),
            ("out-of-bounds", "store y[i, j]", "store y[i + s0, j]"),
            ("reduce-without-axes", "max %2, %3", "reduce.max %2"),
            ("mixes-reduction", "reduce.sum %2", "reduce.sum %2 %r: f32 = mul %0, %3"),
            ("scan-axis", "max %2, %3", "scan.max %2 over k"),
            ("extern-layout", "return y", "buf z: f32[2, 2]{4, 1} extern e = sort(x) -> (z) return y"),
            ("unwritten-buffer", "return y", "buf z: f32[2] extern e = sort(z) -> (z) return y"),
            ("undeclared-symbol", "return y", "extern e = sort(x) -> () ints(s1) return y"),
            ("update-target", "return y", "update y = y return y"),
            ("update-type", "return y", "update x = y return y"),
            ("update-type", "return y", "buf z: f32[s0, 768] on cuda:0 = input update x = z return y"),
            ("device", "buf x: f32[s0, 768]", "buf x: f32[s0, 768] on cuda:0"),
            ("device", "return y", "buf z: f32[2] on cuda:0 extern e = sort(x) -> (z) return y"),
            ("duplicate-update", "return y", "update x = x update x = x return y"),
        ],
    );
    breaks("loops_odd", &[("duplicate-symbol", "%2: u64 = load", "bind i = %0 in 3 %2: u64 = load")]);
    breaks("loops_odd", &[("undeclared-symbol", "%0: i64 = load indices[i]", "%0: i64 = load indices[t0]")]);
}

#[test]
fn buffers_are_what_lies_in_memory() {
    let expanded = "loops @l on cpu { buf x: f32[3] = input buf y: f32[2, 3]{0, 1}
        nest n [i in 3] { %0: f32 = load x[i] store y[0, i] = %0 } return y }";
    assert_eq!(problems(expanded), []);
    let transposed =
        "loops @l on cpu { buf x: f32[2, 1, 3]{1, 1, 2} = input buf y: f32[2, 3] buf i: i64[2, 3]
        extern n = sort(x) -> (y, i) ints(1, 6, 1, 0) return y }";
    assert_eq!(problems(transposed), []);
}

#[test]
fn loops_rules_on_built_data() {
    let parse = || text::loops::parse(&text("loops_product")).expect("canonical text parses");
    let edit = |change: &dyn Fn(&mut loops::Nest)| {
        let mut loops = parse();
        let Some(Stmt::Nest(nest)) = loops.stmts.last_mut() else { panic!("a nest is last") };
        change(nest);
        slugs(&verify::loops::verify(&loops)).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(edit(&|_| {}), [""; 0]);
    assert_eq!(edit(&|nest| nest.body[4].op = InstOp::Cast(Val::new(4))), ["undefined-value"]);
    assert_eq!(edit(&|nest| nest.body[4].op = InstOp::Cast(Val::new(99))), ["undefined-value"]);
    // A store has no value.
    assert_eq!(
        edit(&|nest| nest.body.push(loops::Inst { op: InstOp::Cast(Val::new(5)), ty: Dtype::F32 })),
        ["undefined-value"]
    );
    assert_eq!(edit(&|nest| nest.body[5].ty = Dtype::F64), ["type-mismatch"]);
    let mut loops = parse();
    loops.outputs.push(loops::Output::View {
        buf: loops::Buf(99),
        sizes: vec![],
        strides: vec![],
        offset: litz_sym::Expr::zero(),
    });
    assert_eq!(slugs(&verify::loops::verify(&loops)), BTreeSet::from(["unknown-buffer"]));
}

#[test]
fn an_empty_nest_is_never_out_of_bounds() {
    let text = "loops @l on cpu { buf x: f32[0] = input buf y: f32[0]
        nest n [i in 0] { %0: f32 = load x[i] store y[i] = %0 } return y }";
    assert_eq!(problems(text), []);
}

#[test]
fn what_is_not_known_to_be_inside_is_out_of_bounds() {
    let fill = |buf: &str, facts: &str, axis: &str| {
        let text = format!(
            "loops @l on cpu {{ {facts} buf z: f32[{buf}]
            nest n0 [i in {axis}] {{ %0: f32 = const 0.0 store z[i] = %0 }} return z }}"
        );
        slugs(&problems(&text)).into_iter().collect::<Vec<_>>()
    };
    let sizes = "sym s0 in [0, inf] sym s1 in [0, inf]";
    assert_eq!(fill("8", "", "8"), [""; 0]);
    assert_eq!(fill("8", "", "9"), ["out-of-bounds"]);
    assert_eq!(fill("s0", sizes, "s0"), [""; 0]);
    assert_eq!(fill("s0", sizes, "s1"), ["out-of-bounds"]);
    assert_eq!(fill("s0", &format!("{sizes} guard s1 <= s0 for \"t\""), "s1"), [""; 0]);

    let gather = |guard: &str, extent: &str| {
        let text = format!(
            "loops @l on cpu {{ buf x: f32[8] = input buf p: i64[4] = input buf y: f32[4]
            nest n0 [i in 4] {{ %0: i64 = load p[i] bind t = %0 in {extent} %2: f32 = load x[t]{guard}
            store y[i] = %2 }} return y }}"
        );
        slugs(&problems(&text)).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(gather("", "8"), [""; 0]);
    assert_eq!(gather("", "9"), ["out-of-bounds"]);
    assert_eq!(gather(" if t < 8 else 0.0", "9"), [""; 0]);
    assert_eq!(gather(" if t < 9 else 0.0", "10"), ["out-of-bounds"]);
}

#[test]
fn loads_that_may_leave_loops_without_points_are_inside_by_themselves() {
    // A kernel may load x[0] before it knows whether there is a j.
    let text = |extent: &str| {
        format!(
            "loops @l on cpu {{ sym s0 in [0, inf] sym s1 in [0, inf] buf x: f32[s0] = input buf y: f32[s1]
            nest n0 [j in s1 | k in {extent}] {{ %0: f32 = load x[0] %1: i64 = index k %2: f32 = cast %1
            %3: f32 = add %0, %2 %4: f32 = reduce.sum %3 store y[j] = %4 }} return y }}"
        )
    };
    assert_eq!(slugs(&problems(&text("s0"))), BTreeSet::from(["out-of-bounds"]));
    assert_eq!(problems(&text("s0").replace("s0 in [0,", "s0 in [1,")), []);
}

#[test]
fn views_and_routines_stay_inside() {
    let view = |view: &str| {
        let text = format!(
            "loops @l on cpu {{ sym s0 in [0, inf] buf y: f32[8]
            nest n0 [i in 8] {{ %0: f32 = const 0.0 store y[i] = %0 }} return y as {view} }}"
        );
        slugs(&problems(&text)).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(view("[2, 4]{4, 1}"), [""; 0]);
    assert_eq!(view("[0]{1} + 9"), [""; 0]);
    assert_eq!(view("[2, 4]{4, 1} + 1"), ["out-of-bounds"]);
    assert_eq!(view("[s0]{1}"), ["out-of-bounds"]);

    let sort = |ints: &str| {
        let text = format!(
            "loops @l on cpu {{ buf x: f32[2, 4] = input buf v: f32[2, 4] buf p: i64[2, 4]
            extern e = sort(x) -> (v, p) ints({ints}) return v, p }}"
        );
        slugs(&problems(&text)).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(sort("2, 4, 1, 0"), [""; 0]);
    assert_eq!(sort("2, 4, 2, 0"), ["out-of-bounds"]);
}

#[test]
fn kernel_rules() {
    breaks(
        "kernel_product",
        &[
            ("symbol-name", "size s0 in [2, 1024]", "size nan in [2, 1024] size s0 in [2, 1024]"),
            ("empty-range", "[2, 1024]", "[2, 1]"),
            ("duplicate-symbol", "jo in 96 grain", "jo in 96, io in 1 grain"),
            ("duplicate-symbol", "for k in", "for io in 2 { } for k in"),
            ("undeclared-symbol", "f32[768*s0]", "f32[768*s1]"),
            ("undeclared-symbol", "ceildiv(s0, 13)", "ceildiv(s1, 13)"),
            ("undeclared-symbol", "= %4 if", "= %4 if k < 2,"),
            ("duplicate-name", "register acc", "scratch wp: f32[2359296] register acc"),
            ("negative-size", "for k in 768", "for k in -768"),
            ("symbolic-register", "f32[416]", "f32[416*s0]"),
            ("register-index", "load acc[32*ii + ji]", "load acc[io]"),
            ("symbolic-unroll", "unroll ii in 13", "unroll ii in s0"),
            ("zero-lanes", "by 16 copies 2", "by 16 copies 0"),
            ("zero-lanes", "by 16 copies 2", "by 0"),
            ("no-turns", "by 16 copies 2 {", "by 16 copies 2 in turns {"),
            ("zero-grain", "grain 4", "grain 0"),
            ("undefined-value", "= %4 if", "= %0 if"),
            ("undefined-value", "= %4 if", "= %9 if"),
            ("operand-count", "mul %1, %2", "mul %1"),
            ("type-mismatch", "%3: f32 = mul", "%3: f64 = mul"),
            ("type-mismatch", "mul %1, %2", "and %1, %2"),
            ("type-mismatch", "write y: f32", "write y: f64"),
            ("type-mismatch", "read x: f32", "read x: i32"),
            ("type-mismatch", "const 0.0", "index ji"),
            ("type-mismatch", "const 0.0", "cond ji < 3"),
            ("type-mismatch", "const 0.0", "const 0.0 %h: f32 = round.f64 %0"),
            ("type-mismatch", "const 0.0", "const 0.0 %h: f16 = bitcast %0"),
            ("type-mismatch", "sum= %3", "any= %3"),
            ("type-mismatch", "acc[32*ii + ji] sum= %3", "acc[0], acc[0] argmax= %3, k"),
            ("literal-type", "const 0.0", "const 0"),
            ("literal-type", "else 0.0", "else 0"),
            ("store-to-read", "acc[32*ii + ji] sum= %3", "x[0] sum= %3"),
            ("atomic-store", "acc[32*ii + ji] sum= %3", "atomic acc[32*ii + ji] sum= %3"),
            ("atomic-store", "acc[32*ii + ji] sum= %3", "atomic y[0] = %3"),
            ("atomic-store", "acc[32*ii + ji] sum= %3", "atomic y[0] sum= %3"),
        ],
    );
    breaks("kernel_odd", &[("unknown-check", "check 0\n    %1", "check 2\n    %1")]);
    breaks("kernel_odd", &[("type-mismatch", "bind t = %0", "%f: f32 = const 0.0 bind t = %f")]);
    breaks("kernel_odd", &[("undeclared-symbol", "size s1\n", "")]);
    breaks("kernel_odd", &[("undeclared-symbol", "index s0 - 1", "index t")]);
}

#[test]
fn kernel_rules_on_built_data() {
    let edit = |change: &dyn Fn(&mut kernel::Kernel)| {
        let mut kernel = text::kernel::parse(&text("kernel_product")).expect("canonical text parses");
        change(&mut kernel);
        slugs(&verify::kernel::verify(&kernel)).into_iter().collect::<Vec<_>>()
    };
    let load = |mem: u32| kernel::Op::Load {
        mem: kernel::Mem(mem),
        index: vec![litz_sym::Expr::zero()],
        guard: vec![],
        other: litz_ir::Scalar::Float(0.0),
    };
    assert_eq!(edit(&|kernel| kernel.params = 4), ["param-space"]);
    assert_eq!(edit(&|kernel| kernel.params = 2), ["param-space"]);
    assert_eq!(
        edit(&|kernel| kernel
            .body
            .push(kernel::Stmt::Act(kernel::Act::Let { val: kernel::Val(0), op: load(0) }))),
        ["redefined-value"]
    );
    assert_eq!(
        edit(&|kernel| kernel
            .body
            .push(kernel::Stmt::Act(kernel::Act::Let { val: kernel::Val(99), op: load(0) }))),
        ["undefined-value"]
    );
    let missing = |kernel: &mut kernel::Kernel| {
        let val = kernel.vals.push(Dtype::F32);
        kernel.body.push(kernel::Stmt::Act(kernel::Act::Let { val, op: load(99) }));
    };
    assert_eq!(edit(&missing), ["unknown-memory"]);
}

#[test]
fn program_rules() {
    breaks(
        "program_mlp",
        &[
            ("symbol-name", "sym s0", "sym bf16 in [1, 2] sym s0"),
            ("empty-range", "[2, 1024]", "[2, 1]"),
            ("undeclared-symbol", "u8[12288*s0]", "u8[12288*s1]"),
            ("undeclared-symbol", "sizes(s0)", "sizes(s1)"),
            ("undeclared-symbol", "ints(3072*s0)", "ints(s1)"),
            ("undeclared-symbol", "check s0", "check s1"),
            ("undeclared-symbol", "return y: f32[s0, 3072]", "return int(s1)"),
            ("duplicate-name", "const w:", "param x: f32[s0, 768] const w:"),
            ("stride-rank", "return y: f32[s0, 3072]", "return y: f32[s0, 3072]{1}"),
            ("negative-size", "alloc wp", "alloc n: f32[-1] alloc wp"),
            ("undefined-slot", "launch @k0(x, wp, h)", "launch @k0(x, wp, y)"),
            ("use-after-free", "free p0", "free p0 free p0"),
            ("use-after-free", "free p0", "free p0 launch @k1(h)"),
            ("use-after-free", "return y", "free y return y"),
            ("double-alloc", "free p0", "alloc p0: u8[12288*s0]"),
            ("free-of-param", "free p0", "free x"),
            ("view-overflow", "= p0 + 0", "= p0 + 4"),
            ("view-overflow", "= p0 + 0", "= p0 + -4"),
            ("type-mismatch", "return y: f32", "return y: f64"),
            ("update-target", "free p0", "update y = y"),
            ("device", "const w: f32[3072, 768]", "const w: f32[3072, 768] on cuda:0"),
            ("device", "view h: f32[3072*s0]", "view h: f32[3072*s0] on cuda:0"),
            ("device", "return y: f32[s0, 3072]", "return y: f32[s0, 3072] on cuda:0"),
            ("device", "free p0", "param z: f32[s0, 768] on cuda:0 update x = z"),
            ("device", "free p0", "param z: f32[s0, 768] on cuda:0 extern sort(x, z) -> ()"),
            ("duplicate-update", "free p0", "update x = x update x = x"),
        ],
    );
    breaks(
        "program_mlp",
        &[("use-before-alloc", "launch @pack0(w, wp)", "launch @pack0(w, wp) }\n load { launch @k(x)")],
    );
}

#[test]
fn program_rules_on_built_data() {
    let edit = |change: &dyn Fn(&mut program::Program)| {
        let mut program = text::program::parse(&text("program_mlp")).expect("canonical text parses");
        change(&mut program);
        slugs(&verify::program::verify(&program)).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(edit(&|program| program.slots[program::Slot(0)].dtype = Dtype::F64), ["slot-type"]);
    assert_eq!(
        edit(&|program| program.steps.push(program::ProgramStep::Free { slot: program::Slot(99) })),
        ["unknown-slot"]
    );
    // Without the allocation, its views and uses have no memory either.
    assert_eq!(edit(&|program| drop(program.steps.remove(1))), ["use-before-alloc"]);
}

#[test]
fn what_shares_memory_takes_turns() {
    let found = |steps: &str| {
        let text = format!(
            "program @p on cpu {{ sym s0 in [1, 9] param x: f32[s0] alloc y: f32[4*s0] alloc pool: u8[64*s0]
             alloc z: f32[s0] {steps} return y: f32[4*s0] }}"
        );
        let program = text::program::parse(&text).unwrap_or_else(|diags| panic!("{diags:?}"));
        slugs(&verify::program::verify(&program))
    };
    let shared = || BTreeSet::from(["shared-memory"]);
    let (a, b) = ("view a: f32[s0] = pool + 0", "view b: f32[s0] = pool + 4*s0");
    // Apart, or one after the other.
    assert_eq!(found(&format!("{a} {b} launch @k(x, a, b, y)")), BTreeSet::new());
    let later = "view c: f32[2*s0] = pool + 0";
    assert_eq!(
        found(&format!("{a} {later} launch @k(x, a) launch @k(a, y) launch @k(x, c)")),
        BTreeSet::new()
    );
    assert_eq!(found(&format!("{a} {later} launch @k(x, a) launch @k(x, c) launch @k(a, y)")), shared());
    assert_eq!(found(&format!("{a} {later} launch @k(x, a) launch @k(a, c) launch @k(c, y)")), shared());
    assert_eq!(found(&format!("{b} {later} launch @k(x, b, c, y)")), shared());
    // In what is returned, before that is written.
    let within = "view t: f32[s0] = y + 0";
    assert_eq!(found(&format!("{within} launch @k(x, t) launch @k(t, z) launch @k(z, y)")), BTreeSet::new());
    assert_eq!(found(&format!("{within} launch @k(x, t) launch @k(t, y)")), shared());
    assert_eq!(found(&format!("{within} launch @k(x, y) launch @k(y, t)")), shared());
    // A call finds what load steps left, and so does the next one.
    let load = |steps: &str| {
        let text = format!(
            "program @p on cpu {{ param x: f32[4] load {{ alloc pool: u8[16] view a: f32[4] = pool + 0
             view b: f32[4] = pool + 0 launch @k(a) }} {steps} return x: f32[4] }}"
        );
        slugs(&verify::program::verify(&text::program::parse(&text).expect("parses")))
    };
    assert_eq!(load("launch @k(b)"), BTreeSet::new());
    assert_eq!(load("launch @k(a) launch @k(b)"), shared());
}

#[test]
fn launches_fit_their_kernels() {
    let program = |launch: &str| {
        let text = text("program_mlp").replace("launch @pack0(w, wp)", "extern fill() -> (wp)");
        text::program::parse(&text.replace("launch @k0(x, wp, h) sizes(s0)", launch)).expect("parses")
    };
    let kernels = [text::kernel::parse(&text("kernel_product")).expect("canonical text parses")];
    let found = |launch: &str| slugs(&verify::program::verify_with(&program(launch), &kernels));
    assert_eq!(found("launch @k0(x, wp, h) sizes(s0)"), BTreeSet::new());
    assert_eq!(found("launch @k1(x, wp, h) sizes(s0)"), BTreeSet::from(["unknown-kernel"]));
    assert_eq!(found("launch @k0(x, wp) sizes(s0)"), BTreeSet::from(["launch-args"]));
    assert_eq!(found("launch @k0(x, wp, h) sizes(s0, 2)"), BTreeSet::from(["launch-sizes"]));
    assert_eq!(found("launch @k0(x, wp, p0) sizes(s0)"), BTreeSet::from(["type-mismatch"]));
}
