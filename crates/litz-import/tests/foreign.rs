//! Reads nodes that wrap operators of others: the operator writes to clones, and the wrapper's results are the clones.

mod common;

use common::Zip;
use litz_import::{Archive, ImportError, Imported, import};
use litz_ir::graph::{Node, OpDecl};
use litz_ir::schema::{Autocast, Effect, OpSchema, Schemas, Written};
use litz_ir::text::graph::parse_declaration;
use litz_ops::Table;
use std::path::Path;
use std::sync::Arc;

/// The table, and some declarations.
struct Declared {
    table: Table,
    declarations: Vec<&'static str>,
}

const ALL: [&str; 5] = [
    "mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()",
    "mylib.both.default(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor",
    "mylib.log.default(Tensor x) -> ()",
    "mylib.half.default(Tensor x) -> Tensor",
    "triton.add_kernel.default(Tensor x_ptr, Tensor(a!) out_ptr, int n, str name, int[] grid, int num_warps=1) -> ()",
];

impl Schemas for Declared {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        self.table.lookup(name)
    }
    fn effect(&self, name: &str) -> Effect {
        self.table.effect(name)
    }
    fn autocast(&self, name: &str) -> Autocast {
        self.table.autocast(name)
    }
    fn written(&self, what: Written) -> &'static str {
        self.table.written(what)
    }
    fn declaration(&self, name: &str) -> Result<Option<OpDecl>, String> {
        let Some(text) = self.declarations.iter().find(|text| text.split('(').next() == Some(name)) else {
            return Ok(None);
        };
        parse_declaration(text).map(Some).map_err(|diags| diags[0].message.clone())
    }
}

/// The entries of an archive of `litz/tests/foreign`, its program changed.
fn archive(name: &str, change: impl FnOnce(String) -> String) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("litz").join("tests/foreign");
    let bytes = std::fs::read(folder.join(name).with_extension("pt2")).expect("an archive");
    let archive = Archive::open(Arc::new(bytes.clone())).expect("opens");
    let mut change = Some(change);
    let mut zip = Zip::default();
    for path in archive.paths() {
        let contents = &bytes[archive.range(path).expect("listed")];
        let is_model = path.ends_with("model.json");
        let changed = match change.take_if(|_| is_model) {
            Some(change) => change(String::from_utf8(contents.to_vec()).expect("a text entry")).into_bytes(),
            None => contents.to_vec(),
        };
        zip.add(format!("root/{path}").as_bytes(), &changed);
    }
    zip.finish()
}

fn read(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    read_with(bytes, ALL.to_vec())
}

fn read_with(bytes: Vec<u8>, declarations: Vec<&'static str>) -> Result<Imported, ImportError> {
    let archive = Archive::open(Arc::new(bytes))?;
    let imported = import(&archive, archive.only_model()?, &Declared { table: Table::new(), declarations })?;
    let diags = litz_ir::verify::graph::verify(&imported.graph);
    assert!(diags.is_empty(), "{}", diags[0]);
    Ok(imported)
}

/// Declarations and nodes of a graph, without the lines that they come from.
fn text(imported: &Imported) -> String {
    let mut graph = imported.graph.clone();
    graph.nodes.iter_mut().for_each(|node: &mut Node| node.origin = None);
    graph.to_string().lines().skip(1).map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn views_of_bases_are_views_of_a_clone() {
    let imported = read(archive("rows", |text| text)).expect("a model");
    assert_eq!(
        text(&imported),
        "op mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()
%x: f32[3, 4] = input
%add: f32[3, 4] = aten.add.Tensor(%x, 1, 1)
%written: f32[3, 4] = aten.clone.default(%add, preserve)
%written_1: f32[4] = aten.as_strided.default(%written, [4], [1], 0)
%written_2: f32[4] = aten.as_strided.default(%written, [4], [1], 4)
mylib.two.default(%written_1, %written_2)
return %written
}
"
    );
    assert!(
        imported
            .graph
            .nodes
            .iter()
            .all(|node| node.source().map(|line| &**line).is_some_and(|at| at.starts_with("make.py:")))
    );
}

#[test]
fn what_is_not_given_is_none() {
    let imported = read(archive("lists", |text| text)).expect("a model");
    let text = text(&imported);
    assert!(
        text.contains("%getitem: f32[3, 4] = mylib.both.default(none, [%written, %written_1])"),
        "{text}"
    );
    assert!(text.contains("aten.add.Tensor(%written, %written_1, 1)"), "{text}");
}

#[test]
fn the_first_version_names_what_it_is_given() {
    // PyTorch of these releases writes the second version alone.
    let change = |text: String| {
        let start = text.find(r#"{"name": "_x_base_index""#).expect("the first key");
        let end = text[start..].find(r#""outputs""#).expect("results") + start;
        let (x, y) = (r#"{"as_tensor": {"name": "add"}}"#, r#"{"as_tensor": {"name": "mul"}}"#);
        let inputs =
            format!(r#"{{"name": "x", "arg": {x}, "kind": 2}}, {{"name": "y", "arg": {y}, "kind": 2}}], "#);
        format!("{}{inputs}{}", &text[..start], &text[end..])
            .replace("auto_functionalized_v2", "auto_functionalized")
    };
    let imported = read(archive("written", change)).expect("a model");
    let text = text(&imported);
    assert!(text.contains("%written: f32[3, 4] = aten.clone.default(%add, preserve)"), "{text}");
    assert!(text.contains("mylib.two.default(%written, %written_1)"), "{text}");
    assert!(text.contains("aten.add.Tensor(%written, %written_1, 1)"), "{text}");
}

#[test]
fn what_tokens_order_has_an_effect() {
    let imported = read(archive("logged", |text| text)).expect("a model");
    let text = text(&imported);
    assert!(text.starts_with("op mylib.log.default(Tensor x) -> () effect ordered\n"), "{text}");
    assert!(
        text.contains("\nmylib.log.default(%x)\n") && text.contains("\nmylib.log.default(%add)\n"),
        "{text}"
    );
    assert_eq!((imported.outputs.len(), imported.graph.inputs.len()), (1, 1));
}

/// FO-14: what the declaration does not name is left out, options of AMD's compiler among that.
#[test]
fn kernels_of_triton_are_called_by_name() {
    let imported = read(archive("kernel_configured", |text| text)).expect("a model");
    let text = text(&imported);
    for (call, x, clone) in [(1, "x", "written"), (2, "written", "written_1")] {
        let hash = "0123456789abcdef".repeat(4);
        let call = format!(
            "\ntriton.add_kernel.default(%{x}, %{clone}, 12, \"add_kernel_{hash}{call}\", [1, 1, 1], 4)\n"
        );
        assert!(text.contains(&call), "{call}{text}");
    }
    assert!(text.contains("return %written_1\n"), "{text}");
    assert_eq!(text.matches("op triton.add_kernel.default").count(), 1, "{text}");
}

/// IP-40: the operator that does the same in place is declared as well, if it is one.
#[test]
fn twins_are_declared_with_their_operators() {
    let declared = |twin: &'static str| {
        let declarations = vec!["mylib.half.default(Tensor x) -> Tensor", twin];
        text(&read_with(archive("foo", |text| text), declarations).expect("a model"))
    };
    assert!(declared("mylib.half_.default(Tensor(a!) x) -> Tensor(a!)").contains("op mylib.half_.default("));
    for other in
        ["mylib.half_.default(Tensor(a!) y) -> Tensor(a!)", "mylib.half_.default(Tensor(a!) x -> Tensor"]
    {
        assert!(!declared(other).contains("op mylib.half_.default("), "{other}");
    }
}

#[test]
fn damaged_wrappers_are_errors() {
    for (name, from, to) in [
        ("rows", r#""as_operator": "torch.ops.mylib.two.default""#, r#""as_string": "two""#),
        (
            "rows",
            r#""name": "_y_base_index", "arg": {"as_int": 0}"#,
            r#""name": "_y_base_index", "arg": {"as_int": 1}"#,
        ),
        (
            "rows",
            r#""name": "_y_base_index", "arg": {"as_int": 0}"#,
            r#""name": "_y_base_index", "arg": {"as_int": -1}"#,
        ),
        ("rows", r#""name": "_y_base_index""#, r#""name": "_z_base_index""#),
        ("rows", r#""as_ints": [4]"#, r#""as_ints": [4, 1]"#),
        (
            "rows",
            r#""name": "_y_storage_offset", "arg": {"as_int": 4}"#,
            r#""name": "_y_storage_offset", "arg": {"as_int": -4}"#,
        ),
        ("rows", r#""name": "_all_bases""#, r#""name": "_no_bases""#),
        (
            "lists",
            r#""name": "_ys_length", "arg": {"as_int": 2}"#,
            r#""name": "_ys_length", "arg": {"as_int": 3}"#,
        ),
        ("logged", r#"{"as_tensor": {"name": "getitem"}}, {"as_none": true}"#, r#"{"as_none": true}"#),
        // The declaration writes to the second argument.
        (
            "kernel_fresh",
            r#""output_indices", "arg": {"as_ints": [1]}"#,
            r#""output_indices", "arg": {"as_ints": [0]}"#,
        ),
        (
            "kernel_fresh",
            r#""output_indices", "arg": {"as_ints": [1]}"#,
            r#""output_indices", "arg": {"as_ints": [-1]}"#,
        ),
        (
            "kernel_fresh",
            r#""output_indices", "arg": {"as_ints": [1]}"#,
            r#""output_indices", "arg": {"as_ints": [99]}"#,
        ),
        (
            "kernel_fresh",
            r#""output_indices", "arg": {"as_ints": [1]}"#,
            r#""output_indices", "arg": {"as_ints": []}"#,
        ),
        ("kernel_fresh", r#""output_indices""#, r#""other_indices""#),
        ("kernel_fresh", r#""name": "name""#, r#""name": "title""#),
        (
            "kernel_fresh",
            r#""name": "out_ptr", "arg": {"as_tensor": {"name": "empty_permuted"}}"#,
            r#""name": "out_ptr", "arg": {"as_int": 3}"#,
        ),
        ("kernel_fresh", r#"[{"as_tensors": [{"name": "getitem"}]}]"#, r#"[{"as_tensors": []}]"#),
        // A kernel takes all arguments that it is given.
        ("kernel_fresh", r#""name": "n", "arg": {"as_int": 12}"#, r#""name": "m", "arg": {"as_int": 12}"#),
    ] {
        let change = |text: String| {
            assert!(text.contains(from), "{name} has no {from}");
            text.replacen(from, to, 1)
        };
        let error = read(archive(name, change)).err();
        assert!(error.is_some(), "{from} => {to}");
    }
}

#[test]
fn a_declaration_that_cannot_be_read_is_an_error() {
    let bytes = archive("foo", |text| text);
    let archive = Archive::open(Arc::new(bytes)).expect("opens");
    let declarations = vec!["mylib.half.default(Tensor x -> Tensor"];
    let broken = Declared { table: Table::new(), declarations };
    let error = import(&archive, archive.only_model().expect("one"), &broken).expect_err("no declaration");
    assert!(error.to_string().contains("the declaration of mylib.half.default"), "{error}");
}
