//! Runs some kernels of a program on one device and the others on another, both in the host's memory: for whoever looks for the kernel that only one of
//! the two has wrong.

use std::sync::Arc;

use crate::device::{AtOnce, Device, DeviceMemory, KernelId, Launch, RunsAtOnce, Stream};
use crate::error::RunError;

/// Two devices as one.
pub struct MixedDevice {
    mix: Arc<Mix>,
}

struct Mix {
    devices: [Arc<dyn Device>; 2],
    /// Of each kernel its name, which of the devices runs it, and as which of that device's.
    kernels: Vec<(String, usize, KernelId)>,
}

impl MixedDevice {
    /// Kernels by name; `is_second` says which of them the second device runs. Those that their device does not have are none of this one.
    pub fn new<'a>(
        devices: [Arc<dyn Device>; 2],
        names: impl Iterator<Item = &'a str>,
        is_second: &dyn Fn(&str) -> bool,
    ) -> MixedDevice {
        let kernel = |name: &str| {
            let which = usize::from(is_second(name));
            Some((name.to_owned(), which, devices[which].find(name)?))
        };
        let kernels = names.filter_map(kernel).collect();
        MixedDevice { mix: Arc::new(Mix { devices, kernels }) }
    }
}

impl Device for MixedDevice {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.mix.kernels.iter().position(|(known, ..)| known == name).map(KernelId)
    }

    fn concurrency(&self) -> usize {
        self.mix.devices.iter().map(|device| device.concurrency()).max().unwrap_or(1)
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        self.mix.devices.iter().find_map(|device| device.memory())
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        Ok(Box::new(AtOnce::new(Arc::clone(&self.mix))))
    }
}

impl RunsAtOnce for Mix {
    unsafe fn run(&self, launch: &Launch<'_>) -> Result<(), RunError> {
        let (_, which, kernel) = &self.kernels[launch.kernel.0];
        let mut stream = self.devices[*which].stream()?;
        // SAFETY: the caller's promises are about memory and extents, which both devices see alike; there is scratch memory for the one with more
        // pieces.
        unsafe { stream.launch(&Launch { kernel: *kernel, ..*launch }) };
        stream.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ReferenceDevice;
    use crate::{Executable, Tensor};
    use litz_ir::text;
    use std::collections::HashMap;

    /// A device whose kernels `a` and `b` add a number each.
    fn device(numbers: [&str; 2]) -> (Arc<dyn Device>, Vec<litz_ir::kernel::Kernel>) {
        let kernel = |(name, number): (&str, &str)| {
            let text = format!(
                "kernel @{name} {{ read x: f32[1] write y: f32[1] %0: f32 = load x[0] %1: f32 = const {number} %2: f32 = add %0, %1 y[0] = %2 }}"
            );
            text::kernel::parse(&text).unwrap_or_else(|diags| panic!("{diags:?}"))
        };
        let kernels: Vec<_> = ["a", "b"].into_iter().zip(numbers).map(kernel).collect();
        (Arc::new(ReferenceDevice::new(&kernels).expect("they verify")), kernels)
    }

    #[test]
    fn each_kernel_runs_where_it_is_to() {
        let ((first, kernels), (second, _)) = (device(["1.0", "10.0"]), device(["100.0", "1000.0"]));
        let program = text::program::parse(
            "program @p on cpu { param x: f32[1] alloc t: f32[1] alloc y: f32[1] launch @a(x, t) launch @b(t, y) return y: f32[1] }",
        );
        let program = program.unwrap_or_else(|diags| panic!("{diags:?}"));
        let result = |is_second: &dyn Fn(&str) -> bool| {
            let names = ["a", "b"].into_iter();
            let mixed = MixedDevice::new([Arc::clone(&first), Arc::clone(&second)], names, is_second);
            assert!(mixed.find("c").is_none() && mixed.memory().is_none());
            let weights: HashMap<String, Tensor> = HashMap::new();
            let executable =
                Executable::new(&program, &kernels, Arc::new(mixed), &weights).expect("it loads");
            let outputs =
                executable.run(&[Tensor::from_slice(&[1], &[0f32]).expect("fits")]).expect("it runs");
            outputs[0].tensor().expect("a tensor").to_f64()[0]
        };
        assert_eq!(result(&|_| false), 11.0);
        assert_eq!(result(&|name| name == "a"), 110.0);
        assert_eq!(result(&|_| true), 1100.0);
    }
}
