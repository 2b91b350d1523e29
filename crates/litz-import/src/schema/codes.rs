//! Says what the schema's numbers and names of element types, layouts, memory formats and devices mean.

use super::Device;
use litz_ir::Dtype;
use litz_ir::graph::{self, MemoryFormat};
use serde::Deserialize;

/// Element type, by the schema's own numbers (which differ from C10's).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct ScalarType(pub i64);

/// Memory layout of a tensor; only strided ones are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Layout(pub i64);

/// Memory format argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct MemoryFormatCode(pub i64);

impl ScalarType {
    /// The element type.
    ///
    /// # Errors
    /// Names the type where there is no counterpart.
    pub fn dtype(self) -> Result<Dtype, String> {
        Ok(match self.0 {
            1 => Dtype::U8,
            2 => Dtype::I8,
            3 => Dtype::I16,
            4 => Dtype::I32,
            5 => Dtype::I64,
            6 => Dtype::F16,
            7 => Dtype::F32,
            8 => Dtype::F64,
            10 => Dtype::C64,
            11 => Dtype::C128,
            12 => Dtype::Bool,
            13 => Dtype::BF16,
            28 => Dtype::U16,
            29 => Dtype::F8E4M3,
            30 => Dtype::F8E5M2,
            34 => Dtype::U32,
            35 => Dtype::U64,
            9 => return Err("dtype complex32".to_owned()),
            31 => return Err("dtype float8_e4m3fnuz".to_owned()),
            32 => return Err("dtype float8_e5m2fnuz".to_owned()),
            33 => return Err("dtype float8_e8m0fnu".to_owned()),
            other => return Err(format!("dtype number {other}")),
        })
    }
}

impl Layout {
    /// Checks that the layout is strided.
    ///
    /// # Errors
    /// Names the layout where it is not.
    pub fn expect_strided(self) -> Result<(), String> {
        let name = match self.0 {
            7 => return Ok(()),
            1 => "sparse_coo",
            2 => "sparse_csr",
            3 => "sparse_csc",
            4 => "sparse_bsr",
            5 => "sparse_bsc",
            6 => "_mkldnn",
            other => return Err(format!("layout number {other}")),
        };
        Err(format!("layout {name}"))
    }
}

impl MemoryFormatCode {
    /// The memory format.
    ///
    /// # Errors
    /// When the number is none of the schema's.
    pub fn memory_format(self) -> Result<MemoryFormat, String> {
        match self.0 {
            1 => Ok(MemoryFormat::Contiguous),
            2 => Ok(MemoryFormat::ChannelsLast),
            3 => Ok(MemoryFormat::ChannelsLast3d),
            4 => Ok(MemoryFormat::Preserve),
            other => Err(format!("memory format number {other}")),
        }
    }
}

impl Device<'_> {
    /// The device; a GPU without index is the first.
    ///
    /// # Errors
    /// Names the device where there is no counterpart.
    pub fn device(&self) -> Result<graph::Device, String> {
        match (&*self.r#type, self.index.map(u32::try_from)) {
            ("cpu", _) => Ok(graph::Device::Cpu),
            ("cuda", None) => Ok(graph::Device::Cuda(0)),
            ("cuda", Some(Ok(index))) => Ok(graph::Device::Cuda(index)),
            (name, _) => Err(format!("device {name}")),
        }
    }
}
