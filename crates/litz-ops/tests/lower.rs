//! Checks the loops that graphs lower to, as texts, and the errors of what cannot be lowered.

use litz_ir::graph::{Graph, Type};
use litz_ir::loops::{Loops, Output, Stmt};
use litz_ir::schema::{OpSchema, Schemas};
use litz_ir::{Diags, text, verify};
use litz_ops::{InferCx, ResultRule, Rule, Table, check, coverage, decompose, infer, lower};
use litz_sym::{Expr, Facts, Rel};

fn parse(text: &str) -> Graph {
    text::graph::parse(text).expect("a graph")
}

fn lowered(text: &str) -> Loops {
    let mut graph = parse(text);
    assert_eq!(verify::graph::verify(&graph), Diags::new());
    decompose(&mut graph).expect("decomposes");
    let loops = lower(&graph).expect("lowers");
    assert_eq!(verify::loops::verify(&loops), Diags::new());
    loops
}

/// The statements and what follows them, without indentation.
fn statements(loops: &Loops) -> String {
    let text = loops.to_string();
    let start = text.find("  nest").expect("a nest");
    text[start..].lines().map(|l| l.strip_prefix("  ").unwrap_or(l)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_linear_layer_and_its_activation() {
    let loops = lowered(
        r#"graph @mlp on cpu {
  sym s0 in [2, 1024]
  %x: f32[s0, 768] = input
  %w: f32[3072, 768] = const "fc1.weight"
  %b: f32[3072] = const "fc1.bias"
  %h: f32[s0, 3072] = aten.linear.default(%x, %w, %b)
  %r: f32[s0, 3072] = aten.relu.default(%h)
  return %r
}
"#,
    );
    assert_eq!(
        statements(&loops),
        "\
nest n0 from %h [i in s0, j in 3072 | r0 in 768] {
  %0: f32 = load x[i, r0]
  %1: f32 = load w[j, r0]
  %2: f32 = mul %0, %1
  %3: f32 = reduce.sum %2
  %4: f32 = load b[j]
  %5: f32 = add %3, %4
  store h[i, j] = %5
}
nest n1 from %r [i in s0, j in 3072] {
  %0: f32 = load h[i, j]
  %1: f32 = const 0.0
  %2: f32 = max %0, %1
  store r[i, j] = %2
}
return r
}"
    );
}

#[test]
fn half_types_compute_in_f32() {
    let loops = lowered(
        "graph @g on cpu {
  %x: bf16[8] = input
  %y: bf16[8] = aten.mul.Tensor(%x, 0.1)
  return %y
}
",
    );
    assert_eq!(
        statements(&loops),
        "\
nest n0 from %y [i in 8] {
  %0: bf16 = load x[i]
  %1: f32 = cast %0
  %2: f32 = const 0.1
  %3: f32 = mul %1, %2
  %4: bf16 = cast %3
  store y[i] = %4
}
return y
}"
    );
}

#[test]
fn views_cost_nothing() {
    // Splitting heads, moving them, and merging them again reads the operand as it lies.
    let loops = lowered(
        "graph @g on cpu {
  sym s0 in [2, 64]
  %x: f32[s0, 8, 6] = input
  %y: f32[s0, 8, 6] = aten.neg.default(%x)
  %v: f32[s0, 8, 2, 3] = aten.view.default(%y, [s0, 8, 2, 3])
  %p: f32[s0, 2, 8, 3]{48, 3, 6, 1} = aten.permute.default(%v, [0, 2, 1, 3])
  %q: f32[s0, 8, 2, 3] = aten.permute.default(%p, [0, 2, 1, 3])
  %m: f32[s0, 8, 6] = aten.reshape.default(%q, [s0, 8, 6])
  %e: f32[s0, 8, 6] = aten.exp.default(%m)
  %s: f32[s0, 8]{48, 6} = aten.select.int(%y, 2, 5)
  return %e, %p, %s
}
",
    );
    assert_eq!(loops.stmts.len(), 2);
    assert!(statements(&loops).contains("load y[i, j, k]"));
    let Output::View { strides, offset, .. } = &loops.outputs[1] else { panic!("a view") };
    assert_eq!((format!("{strides:?}"), offset.as_int()), ("[48, 3, 6, 1]".to_owned(), Some(0)));
    let Output::View { offset, .. } = &loops.outputs[2] else { panic!("a view") };
    assert_eq!(offset.as_int(), Some(5));
}

#[test]
fn a_reshape_without_strides_divides() {
    let loops = lowered(
        "graph @g on cpu {
  %x: f32[4, 6] = input
  %t: f32[6, 4]{1, 6} = aten.permute.default(%x, [1, 0])
  %m: f32[3, 8] = aten.reshape.default(%t, [3, 8])
  %e: f32[3, 8] = aten.exp.default(%m)
  return %e
}
",
    );
    let text = statements(&loops);
    assert!(text.contains("floordiv(j, 4)") && text.contains("mod(j, 4)"), "{text}");
}

#[test]
fn outputs_and_updates_are_whole_buffers() {
    let loops = lowered(
        r#"graph @g on cpu {
  %x: f32[2, 3] = input
  %c: f32[3, 2] = const "state"
  %t: f32[3, 2]{1, 3} = aten.permute.default(%x, [1, 0])
  %n: f32[2, 3] = aten.neg.default(%x)
  %m: f32[3, 2]{1, 3} = aten.permute.default(%n, [1, 0])
  update %x = %n
  update %c = %m
  return %t, 7
}
"#,
    );
    // The result of neg as it is; a transposed copy for the constant; a copy of the returned input.
    assert_eq!(loops.stmts.len(), 3);
    let names = |b: litz_ir::loops::Buf| loops.bufs[b].name.clone();
    let updates: Vec<_> = loops.updates.iter().map(|&(to, from)| (names(to), names(from))).collect();
    assert_eq!(updates, [("x".into(), "n".into()), ("c".into(), "c_next".into())]);
    let Output::View { buf, strides, .. } = &loops.outputs[0] else { panic!("a view") };
    assert_eq!((names(*buf), format!("{strides:?}")), ("t_out".into(), "[1, 3]".into()));
    assert_eq!(loops.outputs[1], Output::Int(7.into()));
}

#[test]
fn unused_results_are_not_computed() {
    let loops = lowered(
        "graph @g on cpu {
  %x: f32[2, 3] = input
  _, %i: i64[2] = aten.max.dim(%x, 1)
  return %i
}
",
    );
    assert!(!statements(&loops).contains("reduce.max"));
}

#[test]
fn a_convolution_guards_its_padding() {
    let loops = lowered(
        r#"graph @g on cpu {
  sym s0 in [1, 64]
  %x: f32[s0, 8, 5, 5] = input
  %w: f32[8, 1, 3, 3] = const "w"
  %y: f32[s0, 8, 5, 5] = aten.conv2d.default(%x, %w, none, [1, 1], [1, 1], [1, 1], 8)
  return %y
}
"#,
    );
    let text = statements(&loops);
    // One channel a group: no axis, no division; the input channel is reduced over its single value.
    assert!(
        text.starts_with("nest n0 from %y [i in s0, j in 8, k in 5, l in 5 | r0 in 1, r1 in 3, r2 in 3]"),
        "{text}"
    );
    assert!(
        text.contains("if 0 <= k + r1 - 1, k + r1 - 1 < 5, 0 <= l + r2 - 1, l + r2 - 1 < 5 else 0.0"),
        "{text}"
    );
}

#[test]
fn numbers_that_no_size_gives_are_read_from_inputs() {
    let text = r#"graph @g on cpu {
  sym s0 in [1, 64]
  sym s1 in [1, 64]
  %x: f32[s0] = input
  %m: int(s0) = input
  %n: int(s1) = input
  %y: f32[s0] = aten.mul.Tensor(%x, %n)
  return %y
}
"#;
    let text = lowered(text).to_string();
    assert!(text.contains("size s1 from %n = n"), "{text}");
    let refused = text.matches("size s0").count();
    assert_eq!(refused, 0, "the size of x gives s0: {text}");
}

#[test]
fn conditions_on_numbers_that_no_size_gives_are_reported() {
    let text = r#"graph @g on cpu {
  sym s0 in [2, 64]
  sym s1 in [0, 64]
  guard s1 == 1 or s1 == s0 for "model.py:7"
  %x: f32[s0] = input
  return %x
}
"#;
    let diags = lower(&parse(text)).expect_err("a condition is on what no size gives");
    let found: Vec<_> = diags.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(found, ["model.py:7: `s1 == 1 or s1 == s0`: neither an input nor a computed value gives s1"]);
}

#[test]
fn every_missing_operator_is_reported() {
    let graph = parse(
        r#"graph @g on cpu {
  %x: f32[2] = input
  %y: f32[2] = aten.frobnicate.default(%x) at "model.py:3"
  %z: f32[2] = aten.neg.default(%y)
  %w: f32[2] = aten.twiddle.default(%z) at "model.py:5"
  return %w
}
"#,
    );
    let diags = check(&graph);
    let found: Vec<_> = diags.iter().map(|d| (d.slug, d.message.as_str(), d.source.as_deref())).collect();
    assert_eq!(
        found,
        [
            ("unsupported-operator", "operator aten.frobnicate.default is not supported", Some("model.py:3")),
            ("unsupported-operator", "operator aten.twiddle.default is not supported", Some("model.py:5")),
        ]
    );
    assert_eq!(lower(&graph).expect_err("missing operators"), diags);
}

#[test]
fn unsupported_arguments_name_operator_and_line() {
    let graph = parse(
        r#"graph @g on cpu {
  %x: f32[2] = input
  %y: f32[2] = aten.dropout.default(%x, 0.5, true) at "model.py:3"
  %z: f32[2] = aten.gelu.default(%y, "sigmoid") at "model.py:4"
  return %z
}
"#,
    );
    let diags = lower(&graph).expect_err("unsupported");
    assert_eq!(diags.iter().map(|d| d.slug).collect::<Vec<_>>(), ["unsupported", "bad-argument"]);
    assert!(diags[0].message.contains("aten.dropout.default") && diags[0].message.contains("training"));
    assert!(diags[1].message.contains("`approximate`"), "{}", diags[1].message);
    assert_eq!(diags[1].source.as_deref(), Some("model.py:4"));
}

#[test]
fn inputs_whose_elements_share_memory_are_not_updated() {
    let updated = |ty: &str| {
        lower(&parse(&format!(
            "graph @g on cpu {{
  %x: {ty} = input
  %y: f32[2, 3] = aten.mul.Tensor(%x, 2)
  update %x = %y
  return %y
}}
"
        )))
    };
    for shared in ["f32[2, 3]{1, 1}", "f32[2, 3]{0, 1}", "f32[2, 3]{2, 1}"] {
        let diags = updated(shared).expect_err("unsupported");
        assert_eq!(diags[0].slug, "unsupported");
        assert!(diags[0].message.contains("update of %x"), "{}", diags[0]);
    }
    for apart in ["f32[2, 3]", "f32[2, 3]{1, 2}", "f32[2, 3]{4, 1}"] {
        assert!(updated(apart).is_ok(), "{apart}");
    }
}

/// The types that inference gives to a graph's last node, and the guards it adds.
fn inferred(text: &str) -> Result<(String, Vec<String>), String> {
    let graph = parse(text);
    let mut facts: Facts = graph.facts.clone();
    let table = Table::new();
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut facts, device: graph.device };
    let types = infer(&mut cx, graph.nodes.last().expect("a node")).map_err(|e| e.message)?;
    let show = |ty: &Option<Type>| match ty {
        Some(Type::Tensor(t)) => format!("{}{:?}{:?}", t.dtype, t.sizes, t.strides),
        other => format!("{other:?}"),
    };
    let types: Vec<String> = types.iter().map(show).collect();
    Ok((types.join("; "), facts.guards().iter().map(|g| g.clause.to_string()).collect()))
}

fn two(shapes: (&str, &str), node: &str) -> String {
    format!(
        "graph @g on cpu {{\n  sym s0 in [2, 64]\n  sym s1 in [2, 64]\n  %x: f32{} = input\n  %y: f32{} = input\n  \
         %r: f32[1] = {node}\n  return %r\n}}\n",
        shapes.0, shapes.1
    )
}

#[test]
fn sizes_that_accesses_need_become_guards_of_the_operator() {
    let view = |sizes: &str| {
        lowered(&format!(
            "graph @g on cpu {{ sym s0 in [0, inf] %x: f32[s0] = input
            %y: f32[{sizes}]{{1}} = aten.as_strided.default(%x, [{sizes}], [1], 0) at \"m.py:7\"
            %z: f32[{sizes}] = aten.neg.default(%y) return %z }}"
        ))
    };
    let loops = view("4");
    let [guard] = loops.facts.guards() else { panic!("{:?}", loops.facts.guards()) };
    assert!(guard.who.contains("aten."), "{}", guard.who);
    assert!(loops.facts.proves(&Rel::le(4, Expr::named("s0"))));
    assert!(!loops.facts.proves(&Rel::le(5, Expr::named("s0"))));
    assert_eq!(view("s0").facts.guards(), []);
}

#[test]
fn strides_that_are_symbols_are_not_negative() {
    let loops = lowered(
        "graph @g on cpu { sym s0 in [0, inf] sym s1 in [-inf, inf] %x: f32[s0]{s1} = input
        %n: f32[s1] = input %y: f32[s0] = aten.neg.default(%x) return %y }",
    );
    let guards: Vec<String> = loops.facts.guards().iter().map(|guard| guard.clause.to_string()).collect();
    assert_eq!(guards, ["0 <= s1"]);
}

#[test]
fn sizes_that_must_agree_become_guards() {
    let add = "aten.add.Tensor(%x, %y)";
    let (ty, guards) = inferred(&two(("[s0, 4]", "[s1, 4]"), add)).expect("infers");
    assert_eq!((ty.as_str(), guards), ("f32[s0, 4][4, 1]", vec!["s0 == s1".to_owned()]));
    let (ty, guards) = inferred(&two(("[s0, 1]", "[s1]"), add)).expect("infers");
    assert_eq!((ty.as_str(), guards.len()), ("f32[s0, s1][s1, 1]", 0));
    let why = inferred(&two(("[s0, 3]", "[s0, 4]"), add)).expect_err("sizes differ");
    assert!(why.contains("3 == 4"), "{why}");
    let why = inferred(&two(("[s0, 3]", "[4, s1]"), "aten.mm.default(%x, %y)")).expect_err("sizes differ");
    assert!(why.contains("[s0, 3] and [4, s1]"), "{why}");
}

#[test]
fn large_numbers_take_no_time() {
    // Whether f32 finds the right element is tried for each result, of images of a size that exists.
    let large = 1i64 << 40;
    let resized = lowered(&format!(
        "graph @g on cpu {{
  %x: f32[1, 1, 4, 4] = input
  %y: f32[1, 1, {large}, 4] = aten.upsample_nearest2d.vec(%x, [{large}, 4], none)
  return %y
}}
"
    ));
    assert!(resized.to_string().contains("bind"), "{resized}");
    // Of five elements nothing is left after five differences.
    lowered(&format!(
        "graph @g on cpu {{\n  %x: f32[5] = input\n  %y: f32[0] = aten.diff.default(%x, {large}, 0, none, none)\n  return %y\n}}\n"
    ));
    let sum = format!(
        "graph @g on cpu {{\n  %x: f32[5] = input\n  %y: f32[5] = aten.mvlgamma.default(%x, {large})\n  return %y\n}}\n"
    );
    let diags = lower(&parse(&sum)).expect_err("more terms than there is time for");
    assert!(diags[0].message.contains("an order above"), "{}", diags[0]);
}

#[test]
fn symbolic_views_have_exact_types() {
    let of = |node: &str| inferred(&two(("[s0, 12, s1]", "[1]"), node)).expect("infers").0;
    assert_eq!(of("aten.view.default(%x, [s0, 3, -1])"), "f32[s0, 3, 4*s1][12*s1, 4*s1, 1]");
    assert_eq!(of("aten.flatten.using_ints(%x, 0, 1)"), "f32[12*s0, s1][s1, 1]");
    assert_eq!(of("aten.slice.Tensor(%x, 0, 1, 9223372036854775807)"), "f32[s0 - 1, 12, s1][12*s1, s1, 1]");
    assert_eq!(of("aten.slice.Tensor(%x, 2, -1, 9223372036854775807)"), "f32[s0, 12, 1][12*s1, s1, 1]");
    assert_eq!(of("aten.permute.default(%x, [2, 0, 1])"), "f32[s1, s0, 12][1, 12*s1, s1]");
    assert_eq!(of("aten.sum.dim_IntList(%x, [1])"), "f32[s0, s1][s1, 1]");
    assert_eq!(of("aten.arange.start_step(0, s0, 2)"), "i64[ceildiv(s0, 2)][1]");
}

/// Strides of queries that are broadcast would let results lie on each other.
#[test]
fn attention_of_broadcast_heads_is_contiguous() {
    let attention = "aten.scaled_dot_product_attention.default(%x, %y, %y)";
    let of = |q: &str| inferred(&two((q, "[2, 3, 5, 8]"), attention)).expect("infers").0;
    assert_eq!(of("[2, 1, 4, 8]"), "f32[2, 3, 4, 8][96, 32, 8, 1]");
    assert_eq!(of("[1, 3, 4, 8]"), "f32[2, 3, 4, 8][96, 32, 8, 1]");
}

#[test]
fn every_entry_has_one_schema_that_fits_it() {
    let table = Table::new();
    let lines: Vec<&str> = include_str!("../src/schemas.txt").lines().collect();
    let mut names: Vec<String> = lines.iter().map(|l| OpSchema::parse(l).expect("a schema").name).collect();
    names.sort_unstable();
    // Functions of Python have no overloads.
    let base = |name: &str| name.strip_suffix(".default").unwrap_or(name).to_owned();
    let (listed, entries): (Vec<_>, Vec<_>) =
        (names.iter().map(|name| base(name)).collect(), table.names().into_iter().map(base).collect());
    if cfg!(feature = "linalg") {
        assert_eq!(listed, entries, "run schemas.py");
    } else {
        assert!(entries.iter().all(|entry| listed.contains(entry)), "run schemas.py");
    }
    for name in table.names() {
        let (def, schema) = (table.def(name).expect("listed"), table.lookup(name).expect("a schema"));
        match def.rule {
            Rule::Inplace(twin) => {
                let twin = table.lookup(twin).unwrap_or_else(|| panic!("{name}: no entry {twin}"));
                let arguments = |s: &OpSchema| s.args.iter().map(|a| a.ty).collect::<Vec<_>>();
                assert_eq!(arguments(schema), arguments(twin), "{name}: the twin takes the same arguments");
                assert!(schema.is_mutating(), "{name} writes its first argument");
            }
            Rule::Op(op) => assert!(schema.args.len() >= op.arity(), "{name}: {} takes more", op.name()),
            Rule::View => assert!(matches!(def.result, ResultRule::View(_)), "{name}"),
            Rule::Pointwise(_) => assert!(matches!(def.result, ResultRule::Pointwise(_)), "{name}"),
            Rule::Lower(_) | Rule::Decompose(_) | Rule::Drop => {}
        }
    }
}

#[test]
fn no_operator_is_listed_twice() {
    let report = coverage();
    let total: usize =
        report.lines().last().and_then(|l| l.split(' ').next()?.parse().ok()).expect("a total");
    assert_eq!(total, Table::new().names().len());
}

#[test]
fn a_decomposition_keeps_the_names_of_results() {
    let mut graph = parse(
        "graph @g on cpu {
  %x: f32[5] = input
  %d: f32[4] = aten.diff.default(%x)
  return %d
}
",
    );
    decompose(&mut graph).expect("decomposes");
    let ops: Vec<_> = graph.nodes.iter().map(|n| n.op.as_str()).collect();
    assert_eq!(ops, ["aten.slice.Tensor", "aten.slice.Tensor", "aten.sub.Tensor"]);
    assert_eq!(graph.outputs[0].as_value(), graph.nodes[2].outputs[0]);
    let loops = lower(&graph).expect("lowers");
    assert!(loops.stmts.iter().all(|s| matches!(s, Stmt::Nest(n) if n.from == ["d"])));
}

/// DD-6: a view of a size that nothing gives is refused, also where a guard makes it that of what it views.
#[test]
fn a_size_that_a_node_asks_for_has_a_value() {
    let graph = parse(
        "graph @g on cpu {
  sym u1 in [0, 5]
  sym u2 in [0, 5]
  guard u1 == u2 for \"aten.view.default\"
  %x: i64[5] = input
  %p: i64[u2, 1]{1, u2} = aten.nonzero.default(%x)
  %v: i64[u1] = aten.view.default(%p, [u1])
  return %v
}
",
    );
    let diags = lower(&graph).expect_err("nothing gives u1");
    let [diag] = diags.as_slice() else { panic!("{diags:?}") };
    assert_eq!(diag.slug, "undefined-symbol");
    assert!(
        diag.message.contains("gives u1 a value") && diag.message.contains("aten.view"),
        "{}",
        diag.message
    );
}
