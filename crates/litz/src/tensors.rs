//! Reads and writes named tensors in `.safetensors` and `.npz` files.

use litz_ir::Dtype;
use litz_runtime::Tensor;
use safetensors::tensor::{Dtype as FileDtype, TensorView};
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;

/// Why a file of tensors cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TensorFileError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is damaged, or holds what Litz has no type for.
    #[error("{0}")]
    Format(String),
}

/// Named tensors.
pub type Named = BTreeMap<String, Tensor>;

/// Reads a file by its extension.
///
/// # Errors
/// When the file cannot be read, or is neither a safetensors nor an npz file.
pub fn read(path: &Path) -> Result<Named, TensorFileError> {
    let bytes = std::fs::read(path)?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("npz") => read_npz(&bytes),
        _ => read_safetensors(&bytes),
    }
}

/// Writes a safetensors file; tensors are made contiguous.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, tensors: &Named) -> Result<(), TensorFileError> {
    let mut dense = BTreeMap::new();
    for (name, t) in tensors {
        dense.insert(name, t.to_contiguous().map_err(format_error)?);
    }
    let mut views = Vec::new();
    for (name, t) in &dense {
        let view =
            TensorView::new(file_dtype(t.dtype())?, t.sizes().to_vec(), t.bytes()).map_err(format_error)?;
        views.push((name.as_str(), view));
    }
    let bytes = safetensors::serialize(views, None).map_err(format_error)?;
    Ok(std::fs::write(path, bytes)?)
}

fn format_error(e: impl std::fmt::Display) -> TensorFileError {
    TensorFileError::Format(e.to_string())
}

const DTYPES: &[(FileDtype, Dtype, &str)] = &[
    (FileDtype::BOOL, Dtype::Bool, "|b1"),
    (FileDtype::U8, Dtype::U8, "|u1"),
    (FileDtype::I8, Dtype::I8, "|i1"),
    (FileDtype::U16, Dtype::U16, "<u2"),
    (FileDtype::I16, Dtype::I16, "<i2"),
    (FileDtype::U32, Dtype::U32, "<u4"),
    (FileDtype::I32, Dtype::I32, "<i4"),
    (FileDtype::U64, Dtype::U64, "<u8"),
    (FileDtype::I64, Dtype::I64, "<i8"),
    (FileDtype::F16, Dtype::F16, "<f2"),
    (FileDtype::BF16, Dtype::BF16, ""),
    (FileDtype::F32, Dtype::F32, "<f4"),
    (FileDtype::F64, Dtype::F64, "<f8"),
    (FileDtype::F8_E4M3, Dtype::F8E4M3, ""),
    (FileDtype::F8_E5M2, Dtype::F8E5M2, ""),
    (FileDtype::C64, Dtype::C64, "<c8"),
];

fn file_dtype(dtype: Dtype) -> Result<FileDtype, TensorFileError> {
    let found = DTYPES.iter().find(|d| d.1 == dtype).map(|d| d.0);
    found.ok_or_else(|| TensorFileError::Format(format!("safetensors has no element type {dtype}")))
}

fn read_safetensors(bytes: &[u8]) -> Result<Named, TensorFileError> {
    let file = safetensors::SafeTensors::deserialize(bytes).map_err(format_error)?;
    let mut named = Named::new();
    for (name, view) in file.tensors() {
        let dtype = DTYPES.iter().find(|d| d.0 == view.dtype()).map(|d| d.1);
        let dtype = dtype.ok_or_else(|| {
            TensorFileError::Format(format!(
                "`{name}` has element type {:?}, which Litz does not know",
                view.dtype()
            ))
        })?;
        let tensor = Tensor::from_bytes(dtype, view.shape(), view.data()).map_err(format_error)?;
        named.insert(name, tensor);
    }
    Ok(named)
}

/// Most bytes that the compressed arrays of an npz file give: a small file may ask for a thousand times its size.
const MAX_INFLATED: u64 = 1 << 32;

fn read_npz(bytes: &[u8]) -> Result<Named, TensorFileError> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(format_error)?;
    let mut named = Named::new();
    let mut left = MAX_INFLATED;
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(format_error)?;
        let name = entry.name().map_err(format_error)?.trim_end_matches(".npy").to_owned();
        let is_stored = entry.compression() == zip::CompressionMethod::Stored;
        let mut array = Vec::new();
        entry.take(if is_stored { bytes.len() as u64 } else { left }).read_to_end(&mut array)?;
        if !is_stored {
            left -= array.len() as u64;
        }
        let tensor =
            read_npy(&array).ok_or_else(|| TensorFileError::Format(format!("`{name}`: damaged array")))?;
        named.insert(name, tensor);
    }
    Ok(named)
}

/// Reads NumPy's array format, versions 1 to 3, C or Fortran order.
fn read_npy(bytes: &[u8]) -> Option<Tensor> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (header, data) = match rest.first()? {
        1 => {
            let len = u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?) as usize;
            (rest.get(4..4 + len)?, rest.get(4 + len..)?)
        }
        _ => {
            let len = u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize;
            (rest.get(6..6 + len)?, rest.get(6 + len..)?)
        }
    };
    let header = std::str::from_utf8(header).ok()?;
    let field = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let descr = field("descr")?.strip_prefix('\'')?.split('\'').next()?;
    let dtype = DTYPES.iter().find(|d| d.2 == descr)?.1;
    let shape = field("shape")?.strip_prefix('(')?.split(')').next()?;
    let sizes: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().ok())
        .collect::<Option<_>>()?;
    if !field("fortran_order")?.starts_with("True") {
        return Tensor::from_bytes(dtype, &sizes, data).ok();
    }
    // Column major: the strides say so, and a contiguous copy puts it right.
    let mut strides = vec![1usize; sizes.len()];
    for d in 1..sizes.len() {
        strides[d] = strides[d - 1].checked_mul(sizes[d - 1])?;
    }
    let owner: std::sync::Arc<dyn AsRef<[u8]> + Send + Sync> = std::sync::Arc::new(data.to_vec());
    Tensor::from_shared(dtype, &sizes, &strides, owner, 0).ok()?.to_contiguous().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn numpy_arrays_of_both_orders() {
        let data: Vec<u8> = [1i32, 2, 3, 4, 5, 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        let c = read_npy(&npy("<i4", "False", "(2, 3)", &data)).expect("reads");
        assert_eq!((c.sizes(), c.to_vec::<i32>()), ([2, 3].as_slice(), Some(vec![1, 2, 3, 4, 5, 6])));
        let f = read_npy(&npy("<i4", "True", "(2, 3)", &data)).expect("reads");
        assert_eq!(f.to_vec::<i32>(), Some(vec![1, 3, 5, 2, 4, 6]));
        let scalar = read_npy(&npy("<f4", "False", "()", &1.5f32.to_le_bytes())).expect("reads");
        assert_eq!(scalar.to_vec::<f32>(), Some(vec![1.5]));
    }

    /// Readers of Python literals need time exponential in the depth of brackets, or multiply sizes without checks.
    #[test]
    fn hostile_headers_are_refused_at_once() {
        let start = std::time::Instant::now();
        for depth in [1, 100, 10_000] {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            let nested = npy(&format!("{open}<i4{close}"), "False", "(2, 3)", &[0; 24]);
            assert!(read_npy(&nested).is_none(), "{depth}");
            let shape = format!("({}2,{})", "(".repeat(depth), ")".repeat(depth));
            assert!(read_npy(&npy("<i4", "False", &shape, &[0; 24])).is_none(), "{depth}");
        }
        for shape in ["(4294967296, 4294967296, 4294967296)", "(18446744073709551616,)", "(-1,)"] {
            for fortran in ["False", "True"] {
                assert!(read_npy(&npy("<i4", fortran, shape, &[0; 24])).is_none(), "{shape}");
            }
        }
        let long = [b"\x93NUMPY\x02\x00".as_slice(), &[0xff; 4], b"{'descr'"].concat();
        assert!(read_npy(&long).is_none());
        assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
    }

    #[test]
    fn damaged_arrays_are_refused() {
        let whole = npy("<i4", "False", "(2, 3)", &[0; 24]);
        (0..whole.len()).for_each(|n| assert!(read_npy(&whole[..n]).is_none(), "{n} bytes"));
        assert!(read_npy(&npy("<x9", "False", "(1,)", &[0; 8])).is_none());
    }
}
