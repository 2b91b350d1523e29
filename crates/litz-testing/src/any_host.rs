//! Provides a host that has every operator: what it gives and writes follows from the operator and its operands' elements alone.

use litz_ir::Dtype;
use litz_runtime::Tensor;
use litz_runtime::host::{Host, HostArg, HostError, HostResult, HostTensor};
use litz_runtime::tensor::contiguous_strides;
use litz_sym::Expr;

use crate::models::{Fill, fill_tensor};

/// The host.
pub struct AnyHost;

impl Host for AnyHost {
    fn declaration(&self, _: &str) -> Option<String> {
        Some(String::new())
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        let mut hash = Hash(0xcbf2_9ce4_8422_2325);
        op.bytes().for_each(|byte| hash.add(byte.into()));
        args.iter().try_for_each(|arg| operand(arg, &mut hash))?;
        args.iter_mut().try_for_each(|arg| update(arg, &mut hash))?;
        for result in results.iter_mut().filter(|result| result.is_wanted()) {
            let contents = contents(result.tensor(), &mut hash);
            result.set(&contents)?;
        }
        Ok(())
    }
}

struct Hash(u64);

impl Hash {
    fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }
}

/// Numbers, and elements of tensors where there are few bits that say the same: not those of NaN and zero.
fn operand(arg: &HostArg<'_>, hash: &mut Hash) -> Result<(), HostError> {
    match arg {
        HostArg::Tensor(tensor) => {
            let tensor = tensor.to_tensor()?;
            let is_number = !matches!(tensor.dtype(), Dtype::C64 | Dtype::C128);
            let elements = if is_number { tensor.to_f64() } else { Vec::new() };
            let bits = |value: f64| if value.is_nan() { 1 } else { (value + 0.0).to_bits() };
            elements.into_iter().for_each(|value| hash.add(bits(value)));
        }
        HostArg::List(list) => list.items().iter().try_for_each(|item| operand(item, hash))?,
        HostArg::Int(value) => hash.add(value.cast_unsigned()),
        HostArg::Str(text) => text.as_str().bytes().for_each(|byte| hash.add(byte.into())),
        HostArg::None
        | HostArg::Float(_)
        | HostArg::Bool(_)
        | HostArg::Complex(_)
        | HostArg::Dtype(_)
        | HostArg::Device(_)
        | HostArg::Strided
        | HostArg::MemoryFormat(_) => hash.add(1),
    }
    Ok(())
}

fn update(arg: &mut HostArg<'_>, hash: &mut Hash) -> Result<(), HostError> {
    match arg {
        HostArg::Tensor(tensor) if tensor.is_writable() => {
            let contents = contents(tensor, hash);
            tensor.write(&contents)
        }
        HostArg::List(list) => list.items_mut().iter_mut().try_for_each(|item| update(item, hash)),
        HostArg::Tensor(_)
        | HostArg::None
        | HostArg::Int(_)
        | HostArg::Float(_)
        | HostArg::Bool(_)
        | HostArg::Complex(_)
        | HostArg::Str(_)
        | HostArg::Dtype(_)
        | HostArg::Device(_)
        | HostArg::Strided
        | HostArg::MemoryFormat(_) => Ok(()),
    }
}

fn contents(tensor: &HostTensor<'_>, hash: &mut Hash) -> Tensor {
    hash.add(2);
    let (dtype, sizes) = (tensor.dtype(), tensor.sizes());
    let fill = if dtype.is_float() { Fill::Small } else { Fill::Index(Expr::int(3)) };
    fill_tensor(dtype, sizes, &contiguous_strides(sizes), fill, hash.0)
}
