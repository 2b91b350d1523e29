//! The laws of the text forms for declarations of the host's operators (FO-16): what is printed reads back equal, canonical text
//! prints as it was read, and no text makes the parser panic.

use litz_ir::Dtype;
use litz_ir::graph::{Arg, Constraint, Device, Float, Graph, MemoryFormat, OpDecl};
use litz_ir::schema::{Alias, ArgType, BaseType, OpSchema, SchemaArg, SchemaReturn, Tag};
use litz_ir::text::graph::{parse, parse_declaration};
use litz_ir::verify;
use litz_sym::Expr;
use proptest::prelude::*;

/// As a declaration stands behind the word `op`.
fn printed(decl: &OpDecl) -> String {
    let text = decl.to_string();
    text.strip_prefix("op ").expect("a declaration is a line of a graph").to_owned()
}

/// What parses prints as what parses again, to the same.
fn exercise(text: &str) -> Result<(), TestCaseError> {
    let Ok(decl) = parse_declaration(text) else { return Ok(()) };
    let canonical = printed(&decl);
    let again = parse_declaration(&canonical);
    prop_assert!(again.is_ok(), "{text}\n{canonical}");
    let again = again.expect("it was looked at");
    prop_assert_eq!(printed(&again), canonical);
    prop_assert_eq!(again, decl);
    Ok(())
}

/// FO-16: every schema that PyTorch prints and Litz knows is a declaration, once its name is written as in graphs.
#[test]
fn schemas_of_pytorch_are_declarations() {
    let mut count = 0;
    for line in include_str!("../../litz-ops/src/schemas.txt").lines() {
        let Ok(schema) = OpSchema::parse(line) else { continue };
        let decl = OpDecl { schema, layout: Constraint::default(), effect: None };
        let text = printed(&decl);
        let again = parse_declaration(&text).unwrap_or_else(|diags| panic!("{text}: {}", diags[0]));
        assert_eq!(again, decl, "{text}");
        count += 1;
    }
    assert!(count > 500, "{count}");
}

fn base_type() -> impl Strategy<Value = BaseType> {
    use BaseType::{Bool, Dtype, Float, Int, Scalar, Str, Tensor};
    prop::sample::select(vec![
        Tensor,
        Int,
        Float,
        Bool,
        Scalar,
        Str,
        Dtype,
        BaseType::Device,
        BaseType::Other,
    ])
}

fn any_type() -> impl Strategy<Value = ArgType> {
    (base_type(), any::<[bool; 3]>()).prop_map(|(base, [list, optional_items, optional])| ArgType {
        base,
        list,
        optional_items: list && optional_items,
        optional,
    })
}

fn any_alias() -> impl Strategy<Value = Option<Alias>> {
    prop::option::of(("[a-z]", any::<bool>()).prop_map(|(set, write)| Alias { set, write }))
}

/// A default that a schema can have for an argument of that type.
fn any_default(ty: ArgType) -> BoxedStrategy<Option<Arg>> {
    let one = match ty.base {
        BaseType::Int => any::<i64>().prop_map(|value| Arg::Int(Expr::int(value))).boxed(),
        BaseType::Float => prop::num::f64::NORMAL.prop_map(|value| Arg::Float(Float(value))).boxed(),
        BaseType::Bool => any::<bool>().prop_map(Arg::Bool).boxed(),
        BaseType::Str => "[a-z ,]{0,6}".prop_map(Arg::Str).boxed(),
        BaseType::Dtype => prop::sample::select(vec![Dtype::F32, Dtype::I64]).prop_map(Arg::Dtype).boxed(),
        BaseType::Device => Just(Arg::Device(Device::Cpu)).boxed(),
        BaseType::MemoryFormat => Just(Arg::MemoryFormat(MemoryFormat::Contiguous)).boxed(),
        BaseType::Tensor | BaseType::Scalar | BaseType::Layout | BaseType::Other => Just(Arg::None).boxed(),
    };
    let given = if ty.list { prop::collection::vec(one, 0..3).prop_map(Arg::List).boxed() } else { one };
    prop::option::of(given).boxed()
}

fn any_arg() -> impl Strategy<Value = SchemaArg> {
    let typed = any_type().prop_flat_map(|ty| (Just(ty), any_default(ty)));
    ("[a-z_][a-z0-9_]{0,5}", typed, any_alias()).prop_map(|(name, (ty, default), alias)| SchemaArg {
        name,
        ty,
        default,
        alias,
    })
}

fn any_declaration() -> impl Strategy<Value = OpDecl> {
    let returns = (any_type(), any_alias()).prop_map(|(ty, alias)| SchemaReturn { ty, alias });
    let tags = prop::sample::subsequence(Tag::ALL.to_vec(), 0..=Tag::ALL.len());
    let schema = (
        "[a-z]{1,4}\\.[a-z_]{1,6}\\.[a-z]{1,7}",
        prop::collection::vec(any_arg(), 0..4),
        prop::collection::vec(returns, 0..3),
        tags,
    );
    let layout = prop::sample::select(Constraint::ALL.to_vec());
    (schema, layout, prop::option::of("\\PC{1,6}")).prop_map(
        |((name, args, returns, tags), layout, effect)| OpDecl {
            schema: OpSchema { name, args, returns, tags },
            layout,
            effect,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// FO-16: what verifies reads back equal, alone and at the head of a graph.
    #[test]
    fn what_is_declared_reads_back(decl in any_declaration()) {
        let mut graph = Graph::new("g", Device::Cpu);
        graph.ops.push(decl.clone());
        prop_assert_eq!(verify::graph::verify(&graph), vec![], "{}", graph);
        let again = parse_declaration(&printed(&decl));
        prop_assert!(again.is_ok(), "{}", printed(&decl));
        prop_assert_eq!(again.expect("it was looked at"), decl);
        let again = parse(&graph.to_string());
        prop_assert!(again.is_ok(), "{}", graph);
        prop_assert_eq!(again.expect("it was looked at").ops, graph.ops);
    }

    /// FO-16: no text makes the parser panic, and what it takes prints as what it takes again.
    #[test]
    fn words_of_declarations_in_any_order(
        args in "(((Tensor|int|float|str|Any)(\\(a!?\\)|\\[\\]|\\[2\\]|\\?){0,2} x(=1|=-2.5|=None|=\"a,b\"|='c'|=\\[\\]|y)?|\\*)(, |\\?| ,)){0,3}",
        returns in "\\(\\)|\\(?(Tensor|int)(\\(a!\\)|\\[\\]|\\?|, Tensor){0,2}\\)?",
        rest in "( exact| order| any)?( effect log| effect \"a b\")?( tag nondeterministic_seeded){0,2}( x)?",
    ) {
        exercise(&format!("m.f.o({args}) -> {returns}{rest}"))?;
    }

    /// FO-16: declarations that were damaged.
    #[test]
    fn damaged_declarations(
        decl in any_declaration(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3), 1..4),
    ) {
        let mut chars: Vec<char> = printed(&decl).chars().collect();
        for (at, other, how) in edits {
            let (at, other) = (at.index(chars.len()), other.index(chars.len()));
            match how {
                0 => chars[at] = chars[other],
                1 => chars.insert(at, chars[other]),
                _ => drop(chars.remove(at)),
            }
            if chars.is_empty() {
                break;
            }
        }
        exercise(&chars.into_iter().collect::<String>())?;
    }
}
