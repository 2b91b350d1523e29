//! Reads bytes as `.pt2` archives: the result is a graph that verifies or an error with a message, and never a panic.

use std::sync::Arc;

use litz_import::{Archive, ImportError, Imported, import};
use litz_ir::graph::OpDecl;
use litz_ir::schema::{Autocast, Effect, OpSchema, Schemas, Written};
use litz_ir::text::graph::parse_declaration;
use litz_ir::verify;

use crate::archive;

/// Bytes of each weight: enough for those of every seed.
const WEIGHT_BYTES: usize = 4096;

/// Weights that an archive made around a program has.
const WEIGHTS: usize = 8;

/// The bytes are the whole file.
pub fn any_bytes(bytes: &[u8]) {
    let _ = read(bytes.to_vec());
}

/// The bytes are a program, as [`around`] takes it.
pub fn any_program(bytes: &[u8]) {
    let _ = read(around(bytes));
}

/// A sound archive around `model.json`, a zero byte, and `model_weights_config.json`: damage in them reaches the readers
/// behind the container.
pub fn around(bytes: &[u8]) -> Vec<u8> {
    let cut = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (model, weights) = bytes.split_at(cut);
    let weights = weights.get(1..).unwrap_or_default();
    let names: Vec<String> = (0..WEIGHTS).map(|number| format!("data/weights/weight_{number}")).collect();
    let mut entries: Vec<(&str, &[u8])> = vec![
        ("archive_format", b"pt2"),
        ("archive_version", b"0"),
        ("byteorder", b"little"),
        ("models/model.json", model),
        ("data/weights/model_weights_config.json", weights),
        ("data/constants/model_constants_config.json", br#"{"config": {}}"#),
    ];
    entries.extend(names.iter().map(|name| (name.as_str(), &[0; WEIGHT_BYTES][..])));
    archive::pack(&entries)
}

/// The table, and declarations of some operators that it does not have.
struct Declared(litz_ops::Table);

impl Schemas for Declared {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        self.0.lookup(name)
    }

    fn effect(&self, name: &str) -> Effect {
        self.0.effect(name)
    }

    fn autocast(&self, name: &str) -> Autocast {
        self.0.autocast(name)
    }

    fn written(&self, what: Written) -> &'static str {
        self.0.written(what)
    }

    fn declaration(&self, name: &str) -> Result<Option<OpDecl>, String> {
        let signature = match name {
            "mylib.two.default" => "(Tensor(a!) x, Tensor(b!) y) -> ()",
            "mylib.both.default" => "(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor",
            "mylib.log.default" => "(Tensor x) -> () effect log",
            "mylib.half.default" => "(Tensor x) -> Tensor",
            _ => return Ok(None),
        };
        let read = parse_declaration(&format!("{name}{signature}"));
        read.map(Some).map_err(|diags| diags.first().map_or(String::new(), ToString::to_string))
    }
}

/// What the archive says, verified; nothing for one that is refused with a message.
pub fn read(bytes: Vec<u8>) -> Option<Imported> {
    let imported = || -> Result<Imported, ImportError> {
        let archive = Archive::open(Arc::new(bytes))?;
        import(&archive, archive.only_model()?, &Declared(litz_ops::Table::new()))
    };
    match imported() {
        Ok(imported) => {
            let diags = verify::graph::verify(&imported.graph);
            assert!(diags.is_empty(), "{}", diags[0]);
            Some(imported)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.diags().is_empty());
            None
        }
    }
}
