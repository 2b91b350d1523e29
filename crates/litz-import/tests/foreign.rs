//! Reads nodes that wrap operators of others: the operator writes to clones, and the wrapper's results are the clones.

mod common;

use common::Zip;
use litz_import::{Archive, ImportError, Imported, import};
use litz_ir::graph::{Node, OpDecl};
use litz_ir::schema::{Effect, OpSchema, Schemas, Written};
use litz_ir::text::graph::parse_declaration;
use litz_ops::Table;
use std::path::Path;
use std::sync::Arc;

/// The table, and some declarations.
struct Declared {
    table: Table,
    declarations: Vec<&'static str>,
}

const ALL: [&str; 4] = [
    "mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()",
    "mylib.both.default(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor",
    "mylib.log.default(Tensor x) -> ()",
    "mylib.half.default(Tensor x) -> Tensor",
];

impl Schemas for Declared {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        self.table.lookup(name)
    }
    fn effect(&self, name: &str) -> Effect {
        self.table.effect(name)
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
    let archive = Archive::open(Arc::new(bytes))?;
    let imported = import(
        &archive,
        archive.only_model()?,
        &Declared { table: Table::new(), declarations: ALL.to_vec() },
    )?;
    let diags = litz_ir::verify::graph::verify(&imported.graph);
    assert!(diags.is_empty(), "{}", diags[0]);
    Ok(imported)
}

/// Declarations and nodes of a graph, without the lines that they come from.
fn text(imported: &Imported) -> String {
    let mut graph = imported.graph.clone();
    graph.nodes.iter_mut().for_each(|node: &mut Node| node.source = None);
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
            .all(|node| node.source.as_deref().is_some_and(|at| at.starts_with("make.py:")))
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
