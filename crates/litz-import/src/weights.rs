//! Locates parameters, buffers and constants in the file and checks their descriptions against its bounds.
//!
//! A payload is the whole storage that a group of tensors shares: views, slices, tied and expanded tensors point into
//! one entry with their own offset and strides. Nothing is copied here.

use crate::archive::Archive;
use crate::error::ImportError;
use crate::schema::{self, PayloadMeta, SymInt, TensorMeta};
use litz_ir::Dtype;
use litz_ir::graph::Device;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where a weight is and how it is laid out. Element (i0, i1, ...) is at element `offset + sum(i * stride)` of the
/// storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Bytes of the storage in the file.
    pub storage: Range<usize>,
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each dimension.
    pub sizes: Vec<usize>,
    /// Elements between neighbours along each dimension.
    pub strides: Vec<usize>,
    /// First element.
    pub offset: usize,
    /// Where the tensor lived when it was saved.
    pub device: Device,
    /// An `nn.Parameter`.
    pub is_param: bool,
    /// The file describes the tensor and leaves its bytes out, as programs traced without data do. The storage is
    /// empty.
    pub is_missing: bool,
}

/// The two tables of tensors that a model has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// Parameters and persistent buffers.
    Weights,
    /// Tensor constants and buffers that are not persistent.
    Constants,
}

impl Table {
    fn folder(self) -> &'static str {
        match self {
            Table::Weights => "weights",
            Table::Constants => "constants",
        }
    }

    /// Reads the table of `model`, by name. Empty where the archive has none.
    ///
    /// # Errors
    /// When the table does not parse or any tensor in it cannot be read.
    pub fn read(self, archive: &Archive, model: &str) -> Result<BTreeMap<String, Weight>, ImportError> {
        let folder = self.folder();
        let path = format!("data/{folder}/{model}_{folder}_config.json");
        if archive.range(&path).is_none() {
            return Ok(BTreeMap::new());
        }
        let table = schema::parse_payloads(&path, archive.text(&path)?)?;
        let resolve = |(name, payload): (&schema::Text, &PayloadMeta)| {
            Ok((name.to_string(), resolve(archive, self, name, payload)?))
        };
        table.config.iter().map(resolve).collect()
    }
}

fn resolve(
    archive: &Archive,
    table: Table,
    name: &str,
    payload: &PayloadMeta,
) -> Result<Weight, ImportError> {
    let Some(meta) = payload.tensor_meta.as_ref().filter(|_| !payload.use_pickle) else {
        return Err(ImportError::Pickled { name: name.to_owned() });
    };
    let path = format!("data/{}/{}", table.folder(), payload.path_name);
    let storage = archive
        .range(&path)
        .ok_or_else(|| ImportError::MissingEntry { path, wanted_by: format!("weight `{name}`") })?;
    let mut weight = layout(name, meta)?;
    weight.is_param = payload.is_param;
    check_bounds(name, &mut weight, storage)?;
    Ok(weight)
}

/// Type and layout, everything constant and not negative.
fn layout(name: &str, meta: &TensorMeta) -> Result<Weight, ImportError> {
    let unsupported = |feature| ImportError::UnsupportedType { name: name.to_owned(), feature };
    meta.layout.expect_strided().map_err(unsupported)?;
    let constant = |value: &SymInt| match value {
        SymInt::Int(value) => {
            usize::try_from(*value).map_err(|_| format!("expected a positive size, found {value}"))
        }
        SymInt::Expr(expr) => Err(format!("expected a constant, found `{}`", expr.expr_str)),
    };
    let constants = |values: &[SymInt]| values.iter().map(constant).collect::<Result<Vec<_>, _>>();
    let bad = |why| ImportError::Weight { name: name.to_owned(), why };
    let (sizes, strides) = (constants(&meta.sizes).map_err(bad)?, constants(&meta.strides).map_err(bad)?);
    if sizes.len() != strides.len() {
        return Err(bad(format!("expected {} strides, found {}", sizes.len(), strides.len())));
    }
    Ok(Weight {
        storage: 0..0,
        dtype: meta.dtype.dtype().map_err(unsupported)?,
        sizes,
        strides,
        offset: constant(&meta.storage_offset).map_err(bad)?,
        device: meta.device.device().map_err(unsupported)?,
        is_param: false,
        is_missing: false,
    })
}

fn check_bounds(name: &str, weight: &mut Weight, storage: Range<usize>) -> Result<(), ImportError> {
    let fail = |why| Err(ImportError::Weight { name: name.to_owned(), why });
    let is_empty = weight.sizes.contains(&0);
    weight.is_missing = storage.is_empty() && !is_empty;
    // Offset and extent in elements; saturating, because anything near the limit is out of bounds anyway.
    let extent = weight.sizes.iter().zip(&weight.strides).fold(1usize, |extent, (&size, &stride)| {
        extent.saturating_add(size.saturating_sub(1).saturating_mul(stride))
    });
    let needed = weight.offset.saturating_add(extent).saturating_mul(weight.dtype.size());
    if !is_empty && !weight.is_missing && needed > storage.len() {
        return fail(format!("expected at least {needed} bytes, found {}", storage.len()));
    }
    if !storage.len().is_multiple_of(weight.dtype.size()) {
        let size = weight.dtype.size();
        return fail(format!("expected whole elements of {size} bytes, found {} bytes", storage.len()));
    }
    weight.storage = storage;
    Ok(())
}

impl Weight {
    /// Number of elements; saturates.
    pub fn numel(&self) -> usize {
        if self.sizes.contains(&0) { 0 } else { self.sizes.iter().fold(1, |n, &size| n.saturating_mul(size)) }
    }

    /// Bytes of the file from the first element to the last; none where there are no elements or no bytes.
    pub fn bytes(&self) -> Option<Range<usize>> {
        if self.is_missing || self.sizes.contains(&0) {
            return None;
        }
        let size = self.dtype.size();
        let last: usize =
            self.sizes.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        let start = self.storage.start + self.offset * size;
        Some(start..start + (last + 1) * size)
    }
}
