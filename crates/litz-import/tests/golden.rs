//! Checks text, interface and weights of the graphs that archives of three torch versions become.

mod common;

use common::{Golden, Parts, VERSIONS, bytes, drop_stacks, import_golden};
use litz_import::{Archive, ImportError, InputKind, Output, OutputKind, import};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Float, Graph};
use litz_sym::Expr;
use std::sync::Arc;

const NAMES: [&str; 16] = [
    "branch",
    "cache",
    "cache_core",
    "conv_bn",
    "dtypes",
    "dynamic",
    "empty",
    "loop",
    "mlp",
    "mlp_bf16",
    "no_data",
    "no_grad",
    "specialised",
    "tree",
    "unbacked",
    "views",
];

fn expect_text(name: &str, expected: &str) {
    let found = import_golden("2.15", name).graph.to_string();
    assert_eq!(found.trim(), expected.trim(), "{name}\n{found}");
}

#[test]
fn all_versions_give_the_same_graphs() {
    // Lines of the script, numbers in names, whether cuDNN may be used, and hints at the range of a size differ.
    let same = |graph: &Graph| {
        let line = |line: &str| {
            line.split(" at \"").next().unwrap_or_default().replace("1e-5, true)", "1e-5, false)")
        };
        let text: Vec<String> = graph
            .to_string()
            .lines()
            .filter(|line| !line.contains("sym_constrain_range_for_size"))
            .map(line)
            .collect();
        text.join("\n").replace("getitem_2", "getitem").replace("getitem_3", "getitem_1")
    };
    for name in NAMES {
        let [oldest, old, new] = VERSIONS.map(|version| import_golden(version, name));
        assert_eq!(old.graph.to_string(), new.graph.to_string(), "{name}");
        assert_eq!(same(&oldest.graph), same(&new.graph), "{name}");
        assert_eq!((&old.inputs, &old.outputs), (&new.inputs, &new.outputs), "{name}");
        assert_eq!((&oldest.inputs, oldest.outputs.len()), (&new.inputs, new.outputs.len()), "{name}");
        for other in [&oldest, &old] {
            assert_eq!(other.unknown_guards, [], "{name}");
            // Weights without data have their positions from nothing.
            assert!(other.weights == new.weights || name == "no_data", "{name}");
        }
        assert_eq!(new.has_inplace_ops, name != "cache_core");
        for (found, version) in [oldest, old, new].iter().zip(VERSIONS) {
            assert!(found.torch_version.starts_with(version), "{name}");
        }
    }
}

#[test]
fn graphs_read_back_from_text() {
    for name in NAMES {
        let text = import_golden("2.15", name).graph.to_string();
        let graph: Graph =
            litz_ir::text::graph::parse(&text).unwrap_or_else(|diags| panic!("{name}: {diags:?}\n{text}"));
        assert_eq!(graph.to_string(), text, "{name}");
    }
}

#[test]
fn tensors_are_where_the_file_says() {
    let [here, there] = [r#"{"type": "cpu", "index": null}"#, r#"{"type": "cuda", "index": 1}"#];
    let input =
        r#""x": {"dtype": 7, "sizes": [{"as_int": 3}, {"as_int": 8}], "requires_grad": false, "device": "#;
    let parts = Parts::of("2.15", "mlp");
    let parts = parts.replace_in_model(&format!("{input}{here}"), &format!("{input}{there}"));
    let mut imported = parts.import().expect("only the place of a tensor differs");
    drop_stacks(&mut imported.graph);
    let text = imported.graph.to_string();
    let expected = import_golden("2.15", "mlp").graph.to_string();
    assert_eq!(text, expected.replace("%x: f32[3, 8] =", "%x: f32[3, 8] on cuda:1 ="));
    assert_ne!(text, expected);
}

#[test]
fn arguments_are_filled_in() {
    let expected = r#"
graph @model on cpu {
  %x: f32[3, 8] = input
  %p_fc1_weight: f32[4, 8] = const "fc1.weight"
  %p_fc1_bias: f32[4] = const "fc1.bias"
  %p_fc2_weight: f32[2, 4] = const "fc2.weight"
  %p_fc2_bias: f32[2] = const "fc2.bias"
  %linear: f32[3, 4] = aten.linear.default(%x, %p_fc1_weight, %p_fc1_bias) at "make.py:29"
  %gelu: f32[3, 4] = aten.gelu.default(%linear, "none") at "make.py:29"
  %linear_1: f32[3, 2] = aten.linear.default(%gelu, %p_fc2_weight, %p_fc2_bias) at "make.py:29"
  return %linear_1
}"#;
    expect_text("mlp", expected);
    expect_text("mlp_bf16", &expected.replace("f32", "bf16"));
    expect_text("no_data", expected);
}

#[test]
fn sizes_are_expressions() {
    expect_text(
        "dynamic",
        r#"
graph @model on cpu {
  sym s77 in [2, 64] hint 4
  sym s86 in [0, inf] hint 5
  %x: f32[s77, 3] = input
  %y: f32[2*s77, 3] = input
  %n: int(s86) = input
  %cat: f32[2*s77, 3] = aten.cat.default([%x, %x], 0) at "make.py:48"
  %add: f32[2*s77, 3] = aten.add.Tensor(%cat, %y, 1) at "make.py:48"
  %arange: i64[3*s77 + s86] = aten.arange.default(3*s77 + s86, none, none, cpu, false) at "make.py:49"
  %reshape: f32[6*s77] = aten.reshape.default(%add, [-1]) at "make.py:50"
  return %reshape, %arange, floordiv(s77, 2)
}"#,
    );
}

#[test]
fn data_dependent_sizes_are_symbols() {
    expect_text(
        "unbacked",
        r#"
graph @model on cpu {
  sym u0 in [0, 10]
  sym u1 in [0, 3]
  %x: i64[3] = input
  %max_1: i64[] = aten.max.default(%x) at "make.py:130"
  %item: int(u0) = aten.item.default(%max_1) at "make.py:130"
  %nonzero: i64[u1, 1]{1, u1} = aten.nonzero.default(%x) at "make.py:133"
  %ones: f32[u0] = aten.ones.default([u0], none, none, cpu, false) at "make.py:133"
  return %nonzero, %ones
}"#,
    );
}

#[test]
fn a_fixed_size_leaves_a_guard() {
    let graph = import_golden("2.15", "specialised").graph;
    let [guard] = graph.facts.guards() else { panic!("expected one guard") };
    assert_eq!(guard.who, "math.trunc(1.5*torch.sym_float(L['x'].size()[0])) == 9");
    let holds = |size: i64| guard.clause.eval(&|_| Some(size));
    assert_eq!([5, 6, 7].map(holds), [Some(false), Some(true), Some(false)]);
}

#[test]
fn parts_of_larger_tensors_stand_by_themselves() {
    let imported = import_golden("2.15", "parts");
    assert_eq!(imported.unknown_guards, []);
    let graph = imported.graph;
    // Element 6 of a storage that the tensor is a part of from element 5 on.
    assert_eq!(graph.nodes[0].args[3], Arg::Int(Expr::one()));
    // The rows of a slice lie as far apart as the caller has them; the guard that they do not touch says nothing.
    let rows = graph.tensor(graph.inputs[1]).expect("a tensor");
    assert_eq!(rows.strides, [rows.sizes[1], Expr::one()]);
    assert!(graph.facts.guards().is_empty());
    let before = Parts::of("2.15", "parts").replace_in_model(
        r#""storage_offset", "arg": {"as_int": 6}"#,
        r#""storage_offset", "arg": {"as_int": 4}"#,
    );
    let error = before.import().expect_err("memory that nobody gives").to_string();
    assert!(error.contains("`as_strided` of memory before the tensor"), "{error}");
}

#[test]
fn wrappers_are_inlined() {
    expect_text(
        "no_grad",
        r#"
graph @model on cpu {
  %x: f32[4, 4] = input
  %exp: f32[4, 4] = aten.exp.default(%x) at "make.py:111"
  %add: f32[4, 4] = aten.add.Tensor(%exp, 1, 1) at "make.py:112"
  %sin: f32[4, 4] = aten.sin.default(%add) at "make.py:114"
  %mul: f32[4, 4] = aten.mul.Tensor(%exp, %sin) at "make.py:115"
  return %mul
}"#,
    );
}

#[test]
fn control_flow_gets_subgraphs() {
    expect_text(
        "loop",
        r#"
graph @model on cpu {
  graph @while_loop_cond_graph_0 on cpu {
    %arg0_1: i64[] = input
    %arg1_1: f32[2] = input
    %lt: bool[] = aten.lt.Scalar(%arg0_1, 3) at "make.py:125"
    return %lt
  }
  graph @while_loop_body_graph_0 on cpu {
    %arg0_1: i64[] = input
    %arg1_1: f32[2] = input
    %add: i64[] = aten.add.Tensor(%arg0_1, 1, 1) at "make.py:125"
    %mul: f32[2] = aten.mul.Tensor(%arg1_1, 2) at "make.py:125"
    return %add, %mul
  }
  %n: i64[] = input
  %x: f32[2] = input
  %getitem: i64[], %getitem_1: f32[2] = higher_order.while_loop.default(@while_loop_cond_graph_0, @while_loop_body_graph_0, [%n, %x], []) at "make.py:125"
  return %getitem, %getitem_1
}"#,
    );
    let graph = import_golden("2.15", "branch").graph;
    assert_eq!(graph.subgraphs.len(), 2);
    assert_eq!(graph.subgraphs[1].subgraphs.len(), 2);
}

#[test]
fn state_written_to_is_an_update() {
    expect_text(
        "cache_core",
        r#"
graph @model on cpu {
  %pos: i64[2] = input
  %x: f32[2, 2] = input
  %b_k: f32[4, 2] = const "k"
  %index_put: f32[4, 2] = aten.index_put.default(%b_k, [%pos], %x, false) at "make.py:93"
  %mul: f32[2, 2] = aten.mul.Tensor(%x, 2) at "make.py:94"
  %sum_1: f32[2] = aten.sum.dim_IntList(%index_put, [0], false, none) at "make.py:95"
  update %b_k = %index_put
  update %x = %mul
  return %sum_1
}"#,
    );
    let ops: Vec<String> =
        import_golden("2.15", "cache").graph.nodes.iter().map(|node| node.op.to_string()).collect();
    assert_eq!(ops, ["aten.index_copy_.default", "aten.mul_.Tensor", "aten.sum.dim_IntList"]);
}

#[test]
fn inputs_and_outputs_are_named_by_structure() {
    let imported = import_golden("2.15", "tree");
    let names: Vec<&str> = imported.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names, ["x", "d.u", "d.v", "lst[0]", "p.x", "p.y", "scale", "mode"]);
    let values = imported.inputs.iter().filter(|input| matches!(input.kind, InputKind::Value(_)));
    assert_eq!(values.count(), imported.graph.inputs.len());
    assert_eq!(imported.inputs[6].kind, InputKind::Fixed(Arg::Float(Float(2.5))));
    assert_eq!(imported.inputs[7].kind, InputKind::Fixed(Arg::Str("fast".to_owned())));
    let names: Vec<&str> = imported.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["sum", "parts[0]", "parts[1].x", "parts[1].y", "mode"]);
    let outputs = &imported.graph.outputs;
    assert_eq!(outputs.len(), 5);
    assert_eq!(outputs[0], outputs[2]);
    assert_eq!((outputs[3].as_int().and_then(|e| e.as_int()), &outputs[4]), (Some(5), &Arg::None));
    assert_eq!(
        import_golden("2.15", "mlp").outputs,
        [Output { name: "out".to_owned(), kind: OutputKind::Result }]
    );
}

#[test]
fn weights_point_into_the_file() {
    let file = bytes("2.15", "views");
    let weights = import_golden("2.15", "views").weights;
    let element = |name: &str, index: &[usize]| {
        let weight = &weights[name];
        let at: usize =
            weight.offset + index.iter().zip(&weight.strides).map(|(i, stride)| i * stride).sum::<usize>();
        let storage = &file[weight.storage.clone()];
        f32::from_le_bytes(storage[4 * at..4 * at + 4].try_into().expect("four bytes"))
    };
    // `t` is arange(24).view(4, 6).t(), `tail` is arange(24)[5:21:4], `wide` one 7 expanded.
    assert_eq!((weights["t"].sizes.as_slice(), weights["t"].strides.as_slice()), (&[6, 4][..], &[1, 6][..]));
    assert_eq!((element("t", &[0, 0]), element("t", &[5, 1])), (0.0, 11.0));
    assert_eq!((weights["tail"].offset, element("tail", &[0]), element("tail", &[3])), (5, 5.0, 17.0));
    assert_eq!(
        (weights["wide"].numel(), weights["wide"].storage.len(), element("wide", &[999])),
        (1000, 4, 7.0)
    );
    assert_eq!(weights["t"].storage, weights["tail"].storage);
    assert_eq!(weights["l.weight"].storage, weights["tied"].storage);
    assert_eq!((element("scratch", &[2]), weights["k"].dtype), (1.0, Dtype::I64));
    assert!(weights["tied"].is_param && !weights["t"].is_param);
    assert!(weights.values().all(|weight| weight.storage.start % 64 == 0 && !weight.is_missing));
}

#[test]
fn weights_without_bytes_are_told_from_empty_ones() {
    assert!(
        import_golden("2.15", "no_data")
            .weights
            .values()
            .all(|weight| weight.is_missing && weight.numel() > 0)
    );
    let weights = import_golden("2.15", "empty").weights;
    assert_eq!((weights["w"].numel(), weights["w"].is_missing), (0, false));
    assert_eq!((weights["scalar"].numel(), weights["scalar"].sizes.len()), (1, 0));
}

#[test]
fn unknown_operators_are_listed_at_once() {
    let archive = Archive::open(Arc::new(bytes("2.15", "conv_bn"))).expect("opens");
    let schemas = Golden::read().without(&["aten.conv2d.default", "aten.relu_.default"]);
    let error = import(&archive, "model", &schemas).expect_err("two operators are missing");
    let expected = "2 operators not supported: aten.conv2d.default (1 time, first at make.py:41), \
                    aten.relu_.default (1 time, first at make.py:41)";
    assert_eq!((error.slug(), error.to_string().as_str()), ("unknown-op", expected));
    let diags = error.diags();
    assert_eq!(diags.len(), 2);
    assert_eq!(diags[1].message, "operator `aten.relu_.default` is not supported (used 1 time)");
    assert_eq!(diags[1].source.as_deref(), Some("make.py:41"));
}

#[test]
fn autocast_to_other_types_is_refused() {
    let enabled = |code: &str| {
        Parts::of("2.15", "no_grad").replace_in_model(
            r#"{"as_scalar_type": 13}, "kind": 1}, {"name": "", "arg": {"as_bool": false}"#,
            &format!(
                r#"{{"as_scalar_type": {code}}}, "kind": 1}}, {{"name": "", "arg": {{"as_bool": true}}"#
            ),
        )
    };
    // The sine inside is on no list.
    let graph = |parts: &Parts| parts.import().map(|imported| imported.graph.to_string());
    let off = graph(&Parts::of("2.15", "no_grad")).expect("imports");
    assert_eq!(graph(&enabled("13")), Ok(off));
    let error = enabled("5").import().expect_err("integers are no narrow floats");
    assert_eq!(error.slug(), "unsupported-type", "{error}");
}

#[test]
fn python_functions_need_decomposition() {
    let python = Parts::of("2.15", "mlp")
        .replace_in_model("torch.ops.aten.gelu.default", "torch._functorch.predispatch._add_batch_dim");
    let error = python.import().expect_err("refused");
    let ImportError::UnknownOps { ops } = &error else { panic!("{error}") };
    assert_eq!((&*ops[0].name, ops[0].sources.len()), ("torch._functorch.predispatch._add_batch_dim", 1));
    assert!(error.help().expect("has help").contains("run_decompositions"));
}

#[test]
fn a_guard_that_is_not_understood_is_returned() {
    let guard = "math.sin(L['x'].size()[0]) == 3";
    let parts = Parts::of("2.15", "dynamic").replace_in_model("L['n'] + 3*L['x'].size()[0] >= 0", guard);
    let imported = parts.import().expect("imports");
    let why = "`math.sin` is not supported".to_owned();
    assert_eq!(imported.unknown_guards, [ImportError::Guard { text: guard.to_owned(), why }]);
}

#[test]
fn a_guard_that_can_never_hold_is_an_error() {
    let parts = Parts::of("2.15", "dynamic")
        .replace_in_model("L['n'] + 3*L['x'].size()[0] >= 0", "L['x'].size()[1] == 4");
    assert_eq!(parts.import().expect_err("contradiction").slug(), "unknown-guard");
}
