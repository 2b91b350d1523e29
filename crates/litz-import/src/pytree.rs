//! Parses pytree strings, which describe nested Python containers, to the path of each leaf.
//!
//! `[1, {"type": "builtins.dict", "context": "[\"u\"]", "children_spec": [{"type": null, ...}]}]` has one leaf, `u`.
//! A container of unknown type is opaque: its children are numbered, or named where its context is a list of as
//! many strings.

use crate::error::{ImportError, shorten};
use crate::schema::{NamedTupleDef, Text};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

/// One key of the path to a leaf, as in PyTorch's key paths: `d.u` is `d`, `u`; `lst[0]` is `lst`, 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyEntry {
    /// An argument, a key or a field.
    Name(String),
    /// A position.
    Index(usize),
}

/// Way from the root to a leaf.
pub type Path = Vec<KeyEntry>;

/// Field names by the serialized name of a named tuple.
pub type NamedTuples<'a> = HashMap<Text<'a>, NamedTupleDef<'a>>;

/// Paths of the user inputs in flattened order. The string describes `(args, kwargs)`; `names` are those of the
/// arguments in order, and an argument without one is `args[i]`.
///
/// # Errors
/// When the string is no pytree of arguments.
pub fn input_paths(text: &str, names: &[Text], fields: &NamedTuples) -> Result<Vec<Path>, ImportError> {
    let root = parse("inputs", text)?;
    let [args, kwargs] = root.children_spec.as_slice() else {
        let why = format!("expected (args, kwargs), found {} children", root.children_spec.len());
        return Err(ImportError::Pytree { of: "inputs", why });
    };
    let mut paths = Vec::new();
    for (index, arg) in args.children_spec.iter().enumerate() {
        let start = match names.get(index) {
            Some(name) => vec![KeyEntry::Name(name.to_string())],
            None => vec![KeyEntry::Name("args".to_owned()), KeyEntry::Index(index)],
        };
        arg.push_leaves("inputs", fields, &start, &mut paths)?;
    }
    kwargs.push_leaves("inputs", fields, &Path::new(), &mut paths)?;
    Ok(paths)
}

/// Paths of the user outputs in flattened order; the path of a lone result is empty.
///
/// # Errors
/// When the string is no pytree.
pub fn output_paths(text: &str, fields: &NamedTuples) -> Result<Vec<Path>, ImportError> {
    let mut paths = Vec::new();
    parse("outputs", text)?.push_leaves("outputs", fields, &Path::new(), &mut paths)?;
    Ok(paths)
}

/// The path as text: `d.u`, `lst[0]`, `d["two words"]`; `root` stands before a leading position, and for no path.
pub fn show(root: &str, path: &[KeyEntry]) -> String {
    let mut text = String::new();
    for entry in path {
        let result = match entry {
            KeyEntry::Name(name) if !is_identifier(name) => write!(text, "[{name:?}]"),
            KeyEntry::Name(name) if text.is_empty() => write!(text, "{name}"),
            KeyEntry::Name(name) => write!(text, ".{name}"),
            KeyEntry::Index(index) if text.is_empty() => write!(text, "{root}[{index}]"),
            KeyEntry::Index(index) => write!(text, "[{index}]"),
        };
        result.expect("invariant: writing to a string succeeds");
    }
    if text.is_empty() { root.to_owned() } else { text }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

/// Which input Python's `L[...]` means: arguments by name, members of `*args` as `L['args'][0]` for the argument
/// `args_0`, members of `**kwargs` as `L['kwargs']['k']` for the argument `k`.
pub fn find(paths: &[Path], wanted: &[KeyEntry]) -> Option<usize> {
    let position = |wanted: &[KeyEntry]| paths.iter().position(|path| path == wanted);
    position(wanted).or_else(|| match wanted {
        [KeyEntry::Name(name), KeyEntry::Index(index), rest @ ..] => {
            let flat = [&[KeyEntry::Name(format!("{name}_{index}"))], rest].concat();
            position(&flat)
        }
        [KeyEntry::Name(_), KeyEntry::Name(_), ..] => position(&wanted[1..]),
        _ => None,
    })
}

#[derive(Deserialize)]
struct Spec {
    r#type: Option<String>,
    context: Value,
    children_spec: Vec<Spec>,
}

/// Version of the string format.
const PROTOCOL: i64 = 1;

fn parse(of: &'static str, text: &str) -> Result<Spec, ImportError> {
    let (protocol, spec) = serde_json::from_str::<(i64, Spec)>(text)
        .map_err(|error| ImportError::Pytree { of, why: format!("{error} in `{}`", shorten(text)) })?;
    if protocol != PROTOCOL {
        return Err(ImportError::Pytree {
            of,
            why: format!("expected protocol {PROTOCOL}, found {protocol}"),
        });
    }
    Ok(spec)
}

impl Spec {
    fn push_leaves(
        &self,
        of: &'static str,
        fields: &NamedTuples,
        path: &[KeyEntry],
        paths: &mut Vec<Path>,
    ) -> Result<(), ImportError> {
        let Some(kind) = &self.r#type else {
            paths.push(path.to_vec());
            return Ok(());
        };
        for (entry, child) in self.entries(of, kind, fields)?.into_iter().zip(&self.children_spec) {
            child.push_leaves(of, fields, &[path, &[entry]].concat(), paths)?;
        }
        Ok(())
    }

    /// One entry for each child.
    fn entries(
        &self,
        of: &'static str,
        kind: &str,
        fields: &NamedTuples,
    ) -> Result<Vec<KeyEntry>, ImportError> {
        let numbered = || (0..self.children_spec.len()).map(KeyEntry::Index).collect::<Vec<_>>();
        let entries = match kind {
            "builtins.tuple" | "builtins.list" | "collections.deque" => return Ok(numbered()),
            "builtins.dict" | "collections.OrderedDict" | "collections.defaultdict" => self.keys(),
            "collections.namedtuple" => {
                let def = self.context.as_str().and_then(|name| fields.get(name.trim_matches('"')));
                def.map(|def| def.field_names.iter().map(|name| KeyEntry::Name(name.to_string())).collect())
            }
            _ => {
                return Ok(self
                    .keys()
                    .filter(|keys| keys.len() == self.children_spec.len())
                    .unwrap_or_else(numbered));
            }
        };
        match entries {
            Some(entries) if entries.len() == self.children_spec.len() => Ok(entries),
            _ => {
                let why = format!("expected names of {} children of {kind}", self.children_spec.len());
                Err(ImportError::Pytree { of, why })
            }
        }
    }

    /// The context as a list of keys; it is JSON inside a JSON string.
    fn keys(&self) -> Option<Vec<KeyEntry>> {
        let parsed = serde_json::from_str::<Value>(self.context.as_str()?).ok()?;
        let list = parsed.as_array().or_else(|| parsed.get("dict_context")?.as_array())?;
        let key = |key: &Value| match key {
            Value::String(name) => Some(KeyEntry::Name(name.clone())),
            Value::Number(number) => Some(KeyEntry::Index(usize::try_from(number.as_u64()?).ok()?)),
            _ => None,
        };
        list.iter().map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;

    fn node(kind: &str, context: &str, children: &[&str]) -> String {
        let context = serde_json::to_string(context).expect("a string");
        format!(r#"{{"type": "{kind}", "context": {context}, "children_spec": [{}]}}"#, children.join(", "))
    }
    fn outputs(spec: &str) -> Result<Vec<String>, ImportError> {
        let paths = output_paths(&format!("[1, {spec}]"), &NamedTuples::new())?;
        Ok(paths.iter().map(|path| show("out", path)).collect())
    }

    #[test]
    fn outputs_are_named_by_their_path() {
        assert_eq!(outputs(LEAF).expect("reads"), ["out"]);
        let list = node("builtins.list", "null", &[LEAF, LEAF]);
        let dict = node("builtins.dict", r#"["a", "two words", 3]"#, &[LEAF, &list, &list]);
        let paths = outputs(&dict).expect("reads");
        assert_eq!(paths, ["a", "[\"two words\"][0]", "[\"two words\"][1]", "out[3][0]", "out[3][1]"]);
        assert_eq!(
            outputs(&node("builtins.tuple", "null", &[LEAF, &dict])).expect("reads")[..2],
            ["out[0]", "out[1].a"]
        );
        let factory = r#"{"default_factory_name": "int", "dict_context": ["k"]}"#;
        assert_eq!(outputs(&node("collections.defaultdict", factory, &[LEAF])).expect("reads"), ["k"]);
    }

    #[test]
    fn unknown_containers_are_opaque() {
        assert_eq!(
            outputs(&node("hf.Output", r#"["logits", "kv"]"#, &[LEAF, LEAF])).expect("reads"),
            ["logits", "kv"]
        );
        assert_eq!(
            outputs(&node("hf.Cache", r#"["logits"]"#, &[LEAF, LEAF])).expect("reads"),
            ["out[0]", "out[1]"]
        );
        assert_eq!(outputs(&node("hf.Cache", "no json", &[LEAF])).expect("reads"), ["out[0]"]);
    }

    #[test]
    fn inputs_take_the_arguments_names() {
        let point = node("collections.namedtuple", "golden.Point", &[LEAF, LEAF]);
        let args = node("builtins.tuple", "null", &[LEAF, &point, LEAF]);
        let root = node("builtins.tuple", "null", &[&args, &node("builtins.dict", r#"["k"]"#, &[LEAF])]);
        let point = r#"{"golden.Point": {"field_names": ["x", "y"]}}"#;
        let (names, fields) = (r#"["a", "p"]"#, serde_json::from_str(point).expect("fields"));
        let names: Vec<Text> = serde_json::from_str(names).expect("names");
        let paths = input_paths(&format!("[1, {root}]"), &names, &fields).expect("reads");
        let shown: Vec<String> = paths.iter().map(|path| show("in", path)).collect();
        assert_eq!(shown, ["a", "p.x", "p.y", "args[2]", "k"]);
        let name = |name: &str| KeyEntry::Name(name.to_owned());
        assert_eq!(find(&paths, &[name("p"), name("y")]), Some(2));
        assert_eq!(find(&paths, &[name("kwargs"), name("k")]), Some(4));
        assert_eq!(find(&paths, &[name("q")]), None);
    }

    #[test]
    fn variadic_arguments_are_found() {
        let path = vec![KeyEntry::Name("args_1".to_owned()), KeyEntry::Name("u".to_owned())];
        let wanted = [KeyEntry::Name("args".to_owned()), KeyEntry::Index(1), KeyEntry::Name("u".to_owned())];
        assert_eq!(find(&[path], &wanted), Some(0));
    }

    #[test]
    fn refuses_damage() {
        for text in ["", "[]", "[1]", "[2, {}]", "[1, {}]", &format!("[2, {LEAF}]"), &format!("[1, {LEAF}")] {
            let error = output_paths(text, &NamedTuples::new()).expect_err("refused");
            assert_eq!(error.slug(), "bad-pytree", "{text}");
        }
        assert!(outputs(&node("builtins.dict", r#"["a"]"#, &[LEAF, LEAF])).is_err());
        assert!(outputs(&node("collections.namedtuple", "nowhere.Point", &[LEAF])).is_err());
        assert!(input_paths(&format!("[1, {LEAF}]"), &[], &NamedTuples::new()).is_err());
        let deep = format!(
            "[1, {}",
            r#"{"type": "builtins.list", "context": "null", "children_spec": ["#.repeat(100_000)
        );
        assert!(output_paths(&deep, &NamedTuples::new()).is_err());
    }
}
