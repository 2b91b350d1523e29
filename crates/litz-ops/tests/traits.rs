//! What entries say of operators beside types and lowering: the cautious answer where they say nothing, and nothing that
//! contradicts a schema.

use litz_ir::graph::Graph;
use litz_ir::schema::{Effect, OpSchema, Schemas, Tag};
use litz_ops::traits::Holds;
use litz_ops::{InferCx, Layout, Role, Rule, Table};

/// The graph around one node that reads `%x` and `%c`.
fn graph(node: &str) -> Graph {
    let text = format!(
        "graph @g on cpu {{\n  %x: f32[3, 4] = input\n  %c: bool[] = input\n  {node}\n  return %x\n}}\n"
    );
    litz_ir::text::graph::parse(&text).unwrap_or_else(|d| panic!("{}: {text}", d[0]))
}

fn is_pure(node: &str) -> bool {
    let (table, mut graph) = (Table::new(), graph(node));
    let mut cx =
        InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    cx.is_pure(&graph.nodes[0])
}

#[test]
fn what_does_more_than_give_results_is_not_pure() {
    for node in [
        "%y: f32[3, 4] = aten.bernoulli.default(%x)", // no entry
        "%y: f32[3, 4] = aten.relu_.default(%x)",
        "aten._assert_async.msg(%c, \"no\")",
        "aten._assert_tensor_metadata.default(%x)",
        "%y: f32[3, 4] = aten.dropout.default(%x, 0.5, true)",
        "%y: f32[3, 4] = aten.dropout_.default(%x, 0.5, true)",
        "%y: f32[3, 4] = aten.dropout.default(%x, %c, %x)", // cannot be read
        "%y: f32[3, 4] = aten.scaled_dot_product_attention.default(%x, %x, %x, none, 0.5)",
    ] {
        assert!(!is_pure(node), "{node}");
    }
    for node in [
        "%y: f32[3, 4] = aten.relu.default(%x)",
        "%y: f32[3, 4] = aten.dropout.default(%x, 0.5, false)",
        "%y: f32[3, 4] = aten.dropout.default(%x, 0.0, true)",
        "%y: f32[3, 4] = aten.scaled_dot_product_attention.default(%x, %x, %x, none, 0.0)",
    ] {
        assert!(is_pure(node), "{node}");
    }
}

/// A twin that PyTorch tags as random is not merged, whoever adds its entry.
#[test]
fn tags_and_schemas_imply_what_entries_do_not_state() {
    let table = Table::new();
    for name in table.names() {
        let op = table.op(name).expect("listed");
        let (traits, tags) = (&op.def.traits, &op.schema.tags);
        if tags.contains(&Tag::MaybeAliasingOrMutating) {
            assert!(
                !matches!(traits.alias, Holds::Implied),
                "{name}: the schema does not say what it aliases"
            );
            assert!(traits.effect.is_some(), "{name}: the schema does not say what it writes");
        }
        if op.schema.is_mutating() {
            assert_eq!(op.effect(), Effect::Other, "{name} writes to its arguments");
            let written: Vec<usize> = op.schema.written().collect();
            let is_written = matches!(op.def.rule, Rule::Inplace(_) | Rule::Drop) && written == [0];
            let is_stated = traits.updates.is_some_and(|updates| {
                updates.args.iter().filter_map(|arg| op.schema.position(arg)).eq(written.iter().copied())
            });
            assert!(is_written || is_stated, "{name}: functionalisation knows no value that it writes");
        }
        if let Some(updates) = traits.updates {
            let twin =
                table.lookup(updates.twin).unwrap_or_else(|| panic!("{name}: no entry {}", updates.twin));
            assert!(twin.returns.len() >= op.schema.returns.len() + updates.args.len(), "{name}");
            let arguments =
                |s: &OpSchema| s.args.iter().map(|a| (a.name.clone(), a.ty.base)).collect::<Vec<_>>();
            assert!(
                arguments(op.schema).starts_with(&arguments(twin)),
                "{name}: the twin takes the first arguments"
            );
            assert!(updates.args.iter().all(|arg| op.schema.position(arg).is_some()), "{name}");
        }
        if op.schema.returns.is_empty() && !op.schema.is_mutating() {
            assert!(traits.effect.is_some(), "{name} has no results: what is it for?");
        }
        // What may copy its operand instead of viewing it says when.
        let may_copy = op.schema.is_aliasing() && matches!(op.def.rule, Rule::Lower(_));
        if may_copy && op.layout() != Layout::Reads {
            assert!(matches!(traits.alias, Holds::When(_)), "{name}");
        }
    }
    assert_eq!(table.effect("aten.no_such.default"), Effect::Other);
}

/// Random operators become those of one seed, each of a stream of its own; what is not random stays as it is.
#[test]
fn random_operators_share_a_seed() {
    let text = "graph @g on cpu {
  %x: f32[2, 3] = input
  %a: f32[2, 3] = aten.rand_like.default(%x, none, none, none, none, none)
  %b: f32[2, 3] = aten.dropout.default(%a, 0.5, false)
  %c: f32[2, 3] = aten.normal_.default(%x, 1.0, 2.0, none)
  return %b, %c
}
";
    let mut graph = litz_ir::text::graph::parse(text).expect("it parses");
    let seed = litz_ops::seed::seeded(&mut graph).expect("all are supported").expect("some are random");
    assert_eq!(graph.inputs.last(), Some(&seed));
    let diags = litz_ir::verify::graph::verify(&graph);
    assert!(diags.is_empty(), "{diags:?}\n{graph}");
    let text = graph.to_string();
    for line in [
        "%litz.seed: i64[] = input",
        "%a: f32[2, 3] = litz.uniform.default(%litz.seed, 0, [2, 3], f32)",
        "%b: f32[2, 3] = aten.dropout.default(%a, 0.5, false)",
        "= litz.normal.default(%litz.seed, 1, [2, 3], f32)",
        "%c: f32[2, 3] = aten.copy_.default(%x, ",
    ] {
        assert!(text.contains(line), "expected {line} in\n{text}");
    }
    let mut fixed = litz_ir::text::graph::parse(&text).expect("it parses");
    assert_eq!(litz_ops::seed::seeded(&mut fixed).expect("nothing is random"), None);
}

#[test]
fn scatters_take_what_their_views_take() {
    let table = Table::new();
    for name in table.names() {
        let op = table.op(name).expect("listed");
        let Some(twin) = op.def.traits.scatter else { continue };
        let twin = table.lookup(twin).unwrap_or_else(|| panic!("{name}: no entry {twin}"));
        let names = |args: &[litz_ir::schema::SchemaArg]| -> Vec<_> {
            args.iter().map(|arg| (arg.name.clone(), arg.ty)).collect()
        };
        assert_eq!(twin.args[1].name, "src", "{name}");
        assert_eq!(names(&op.schema.args[1..]), names(&twin.args[2..]), "{name}");
    }
}

#[test]
fn layers_and_norms_have_the_arguments_of_their_role() {
    let table = Table::new();
    let mut counts = [0, 0];
    for name in table.names() {
        let op = table.op(name).expect("listed");
        let at = |arg: &str| op.schema.position(arg);
        match op.def.traits.role {
            Role::Layer => {
                assert_eq!((at("weight"), at("bias")), (Some(1), Some(2)), "{name}");
                counts[0] += 1;
            }
            Role::BatchNorm => {
                assert!(at("running_mean").is_some() && at("running_var").is_some(), "{name}");
                counts[1] += 1;
            }
            Role::Other => {}
        }
    }
    assert_eq!(counts, [11, 2]);
}
