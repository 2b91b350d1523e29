//! Defines what calls of the host's operators are given, tensors, numbers, text, and lists of these, and what they give.
//!
//! Loops and programs share the shape. What a tensor is differs: a view of a buffer there, of a slot here.

use crate::dtype::Dtype;
use crate::graph::{Device, Float, MemoryFormat};
use litz_sym::Expr;

/// An argument of a call. `T` is a tensor: a part of memory with sizes and strides.
#[derive(Clone, PartialEq, Debug)]
pub enum CallArg<T> {
    /// Nothing given.
    None,
    /// A tensor that is read.
    Tensor(T),
    /// A tensor that is read and written: `update x as [4]`.
    Update(T),
    /// A list, of anything.
    List(Vec<CallArg<T>>),
    /// An integer.
    Int(Expr),
    /// A float.
    Float(Float),
    /// A truth value.
    Bool(bool),
    /// A complex number.
    Complex(Float, Float),
    /// Text.
    Str(String),
    /// An element type.
    Dtype(Dtype),
    /// A device.
    Device(Device),
    /// Strided, the only layout there is.
    Strided,
    /// A choice of strides.
    MemoryFormat(MemoryFormat),
}

/// A result of a call. `T` is where it goes.
#[derive(Clone, PartialEq, Debug)]
pub enum CallResult<T> {
    /// Nobody reads it, or the operator does not give it: `_`.
    Nothing,
    /// A tensor, written whole.
    Whole(T),
    /// `sizes n of f32`: a tensor whose sizes the operator decides. A vector of 64-bit integers gets a number by which the runtime knows the
    /// tensor, and its sizes behind that.
    Sizes(T, Dtype),
}

/// The operator of the runtime that writes a tensor which an earlier call has given: `litz.take.default(n as [3]) -> (y)`.
pub const TAKE: &str = "litz.take.default";

impl<T> CallResult<T> {
    /// What is written.
    pub fn written(&self) -> Option<&T> {
        match self {
            CallResult::Nothing => None,
            CallResult::Whole(to) | CallResult::Sizes(to, _) => Some(to),
        }
    }

    /// As [`CallResult::written`], to be changed.
    pub fn written_mut(&mut self) -> Option<&mut T> {
        match self {
            CallResult::Nothing => None,
            CallResult::Whole(to) | CallResult::Sizes(to, _) => Some(to),
        }
    }

    /// The result with what is written replaced.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<CallResult<U>, E> {
        Ok(match self {
            CallResult::Nothing => CallResult::Nothing,
            CallResult::Whole(to) => CallResult::Whole(f(to)?),
            CallResult::Sizes(to, dtype) => CallResult::Sizes(f(to)?, *dtype),
        })
    }
}

impl<T> CallArg<T> {
    /// Calls `f` on each tensor in this argument, lists included, with whether it is written.
    pub fn each_tensor<'a>(&'a self, f: &mut impl FnMut(&'a T, bool)) {
        match self {
            CallArg::Tensor(tensor) => f(tensor, false),
            CallArg::Update(tensor) => f(tensor, true),
            CallArg::List(items) => items.iter().for_each(|item| item.each_tensor(f)),
            CallArg::None
            | CallArg::Int(_)
            | CallArg::Float(_)
            | CallArg::Bool(_)
            | CallArg::Complex(..)
            | CallArg::Str(_)
            | CallArg::Dtype(_)
            | CallArg::Device(_)
            | CallArg::Strided
            | CallArg::MemoryFormat(_) => {}
        }
    }

    /// As [`CallArg::each_tensor`], for tensors that are to be changed.
    pub fn each_tensor_mut(&mut self, f: &mut impl FnMut(&mut T)) {
        match self {
            CallArg::Tensor(tensor) | CallArg::Update(tensor) => f(tensor),
            CallArg::List(items) => items.iter_mut().for_each(|item| item.each_tensor_mut(f)),
            CallArg::None
            | CallArg::Int(_)
            | CallArg::Float(_)
            | CallArg::Bool(_)
            | CallArg::Complex(..)
            | CallArg::Str(_)
            | CallArg::Dtype(_)
            | CallArg::Device(_)
            | CallArg::Strided
            | CallArg::MemoryFormat(_) => {}
        }
    }

    /// Calls `f` on each integer in this argument, lists included. Those of tensors are not among them.
    pub fn each_int(&self, f: &mut impl FnMut(Expr)) {
        match self {
            CallArg::Int(value) => f(*value),
            CallArg::List(items) => items.iter().for_each(|item| item.each_int(f)),
            CallArg::None
            | CallArg::Tensor(_)
            | CallArg::Update(_)
            | CallArg::Float(_)
            | CallArg::Bool(_)
            | CallArg::Complex(..)
            | CallArg::Str(_)
            | CallArg::Dtype(_)
            | CallArg::Device(_)
            | CallArg::Strided
            | CallArg::MemoryFormat(_) => {}
        }
    }

    /// The argument with each tensor replaced and everything else as it is.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<CallArg<U>, E> {
        Ok(match self {
            CallArg::None => CallArg::None,
            CallArg::Tensor(tensor) => CallArg::Tensor(f(tensor)?),
            CallArg::Update(tensor) => CallArg::Update(f(tensor)?),
            CallArg::List(items) => {
                CallArg::List(items.iter().map(|item| item.try_map(f)).collect::<Result<_, E>>()?)
            }
            CallArg::Int(value) => CallArg::Int(*value),
            CallArg::Float(value) => CallArg::Float(*value),
            CallArg::Bool(value) => CallArg::Bool(*value),
            CallArg::Complex(re, im) => CallArg::Complex(*re, *im),
            CallArg::Str(text) => CallArg::Str(text.clone()),
            CallArg::Dtype(dtype) => CallArg::Dtype(*dtype),
            CallArg::Device(device) => CallArg::Device(*device),
            CallArg::Strided => CallArg::Strided,
            CallArg::MemoryFormat(format) => CallArg::MemoryFormat(*format),
        })
    }
}
