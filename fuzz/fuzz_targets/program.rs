//! A program's JSON in an archive that is sound: the damage reaches the readers behind the container.
//!
//! The input is `model.json`, a zero byte, and `model_weights_config.json`. What imports is lowered too.

#![no_main]

#[path = "../../crates/litz-import/tests/common/mod.rs"]
mod common;

use common::Zip;
use libfuzzer_sys::fuzz_target;
use litz_import::{Archive, ImportError, Imported, import};
use litz_ir::verify;
use std::sync::Arc;

/// Bytes of each weight: enough for those of every seed.
const WEIGHT_BYTES: usize = 4096;

/// Weights that the archive has.
const WEIGHTS: usize = 8;

fn archive(model: &[u8], weights: &[u8]) -> Vec<u8> {
    let mut zip = Zip::default();
    zip.add(b"root/archive_format", b"pt2");
    zip.add(b"root/archive_version", b"0");
    zip.add(b"root/byteorder", b"little");
    zip.add(b"root/models/model.json", model);
    zip.add(b"root/data/weights/model_weights_config.json", weights);
    zip.add(b"root/data/constants/model_constants_config.json", br#"{"config": {}}"#);
    for number in 0..WEIGHTS {
        zip.add(format!("root/data/weights/weight_{number}").as_bytes(), &[0; WEIGHT_BYTES]);
    }
    zip.finish()
}

fn read(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    let archive = Archive::open(Arc::new(bytes))?;
    import(&archive, archive.only_model()?, &litz_ops::Table::new())
}

fuzz_target!(|bytes: &[u8]| {
    let cut = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (model, weights) = bytes.split_at(cut);
    match read(archive(model, weights.get(1..).unwrap_or_default())) {
        Ok(imported) => {
            let diags = verify::graph::verify(&imported.graph);
            assert!(diags.is_empty(), "{}", diags[0]);
        }
        Err(error) => assert!(!error.to_string().is_empty() && !error.diags().is_empty()),
    }
});
