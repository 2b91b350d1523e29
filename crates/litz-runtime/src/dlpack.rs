//! Declares the structs of DLPack, by which array libraries hand tensors to each other, and reads element types of it.
//!
//! The layouts are those of `dlpack.h`, version 1.3.

use std::ffi::c_void;

use litz_ir::Dtype;

/// Version of the structs that follow it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Version {
    /// Structs of another one differ.
    pub major: u32,
    /// Element types and devices are added with it.
    pub minor: u32,
}

/// Where a tensor is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// 1 for the host, 2 for NVIDIA GPUs.
    pub kind: i32,
    /// Which of them.
    pub index: i32,
}

/// The host's memory.
pub const CPU: Device = Device { kind: 1, index: 0 };

/// The kind of NVIDIA GPUs.
pub const CUDA: i32 = 2;

/// An element type: family, bits and lanes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataType {
    /// Family.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Elements of a vector; 1.
    pub lanes: u16,
}

/// A tensor that somebody else keeps alive.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLTensor {
    /// Its memory.
    pub data: *mut c_void,
    /// Where that is.
    pub device: Device,
    /// Number of dimensions.
    pub rank: i32,
    /// Element type.
    pub dtype: DataType,
    /// Extent of each dimension.
    pub shape: *mut i64,
    /// In elements; before version 1.2 null for row-major tensors.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor that lives until its deleter is called.
#[repr(C)]
pub struct Managed {
    /// The tensor.
    pub tensor: DLTensor,
    /// What the deleter needs.
    pub context: *mut c_void,
    /// Ends the tensor, and frees this struct.
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// The same, with a version and flags.
#[repr(C)]
pub struct ManagedVersioned {
    /// Of this struct.
    pub version: Version,
    /// What the deleter needs.
    pub context: *mut c_void,
    /// Ends the tensor, and frees this struct.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    /// [`READ_ONLY`] among others.
    pub flags: u64,
    /// The tensor.
    pub tensor: DLTensor,
}

/// The flag of tensors that nobody may write.
pub const READ_ONLY: u64 = 1;

/// The head of a table of functions that a library's tensor type provides as `__dlpack_c_exchange_api__`.
#[repr(C)]
pub struct ExchangeHeader {
    /// Of the table.
    pub version: Version,
    /// The table of an earlier version.
    pub previous: *mut ExchangeHeader,
}

/// Functions that exchange Python's tensors and structs without going through Python. All of them return 0, or -1 with an exception set.
#[repr(C)]
pub struct ExchangeApi {
    /// Its version.
    pub header: ExchangeHeader,
    /// Makes a tensor.
    pub allocate: *const c_void,
    /// Makes a struct that lives as long as it is wanted.
    pub managed_of_object: *const c_void,
    /// Makes a tensor of the library of a struct, which it takes over.
    pub object_of_managed: Option<unsafe extern "C" fn(*mut ManagedVersioned, *mut *mut c_void) -> i32>,
    /// Fills a struct that is valid for as long as the object is.
    pub tensor_of_object: Option<unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> i32>,
    /// The stream of a device, by kind and number, on which the library works.
    pub current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> i32>,
}

/// Name of the capsule that [`ExchangeApi`] comes in.
pub const EXCHANGE_CAPSULE: &std::ffi::CStr = c"dlpack_exchange_api";

/// Families and bits of element types, as DLPack numbers them.
const TYPES: [(Dtype, u8, u8); 17] = [
    (Dtype::Bool, 6, 8),
    (Dtype::U8, 1, 8),
    (Dtype::U16, 1, 16),
    (Dtype::U32, 1, 32),
    (Dtype::U64, 1, 64),
    (Dtype::I8, 0, 8),
    (Dtype::I16, 0, 16),
    (Dtype::I32, 0, 32),
    (Dtype::I64, 0, 64),
    (Dtype::F16, 2, 16),
    (Dtype::BF16, 4, 16),
    (Dtype::F32, 2, 32),
    (Dtype::F64, 2, 64),
    (Dtype::F8E4M3, 10, 8),
    (Dtype::F8E5M2, 12, 8),
    (Dtype::C64, 5, 64),
    (Dtype::C128, 5, 128),
];

impl DataType {
    /// DLPack's number of a type.
    pub fn of(dtype: Dtype) -> DataType {
        let known = TYPES.iter().find(|(of, ..)| *of == dtype);
        let &(_, code, bits) = known.expect("invariant: the table has every type");
        DataType { code, bits, lanes: 1 }
    }

    /// The type of a number; none where Litz has no such type.
    pub fn dtype(self) -> Option<Dtype> {
        let is_same = |(_, code, bits): &&(Dtype, u8, u8)| (*code, *bits) == (self.code, self.bits);
        TYPES.iter().find(is_same).filter(|_| self.lanes == 1).map(|&(dtype, ..)| dtype)
    }
}
