//! Has backends around the CPU's that change kernels before they are emitted, or crash.

use std::sync::Arc;

use litz::{Backend, BackendError, Factory, KernelPass, Request};
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, Op, Stmt, visit, visit_mut};
use litz_ir::scalar::{Scalar, ScalarOp};
use litz_ir::target::Target;
use litz_runtime::artifact::Machine;
use litz_runtime::device::Device;
use litz_runtime::pool::ThreadPool;

/// What the pass on kernels is called that is a fault.
pub const WRONG_PASS: &str = "wrong_kernel_pass";

/// Minima are maxima.
pub(super) static MINIMUM: Factory =
    factory(|request| wrong(request, |kernel| replace(kernel, ScalarOp::Min, ScalarOp::Max), None));

/// Arctangents are sines.
pub(super) static ARCTANGENT: Factory =
    factory(|request| wrong(request, |kernel| replace(kernel, ScalarOp::Atan, ScalarOp::Sin), None));

/// The error function is the hyperbolic tangent.
pub(super) static ERROR: Factory =
    factory(|request| wrong(request, |kernel| replace(kernel, ScalarOp::Erf, ScalarOp::Tanh), None));

/// Inverse roots are roots where there is an exponential function in the same kernel.
pub(super) static ROOT: Factory = factory(|request| {
    let change = |kernel: &mut Kernel| {
        if has(kernel, ScalarOp::Exp) {
            replace(kernel, ScalarOp::Rsqrt, ScalarOp::Sqrt);
        }
    };
    wrong(request, change, None)
});

/// Twice is two and a half times.
pub(super) static FACTOR: Factory = factory(|request| {
    let change = |kernel: &mut Kernel| {
        each_op(kernel, &mut |op| {
            if *op == Op::Const(Scalar::Float(2.0)) {
                *op = Op::Const(Scalar::Float(2.5));
            }
        });
    };
    wrong(request, change, None)
});

/// A pass of the backend makes cosines sines.
pub(super) static COSINES: Factory = factory(|request| {
    let run = |kernel: &mut Kernel, _: &Target| {
        replace(kernel, ScalarOp::Cos, ScalarOp::Sin);
        Ok::<(), Diag>(())
    };
    wrong(request, |_| {}, Some(KernelPass { name: WRONG_PASS, run }))
});

/// The process ends where a kernel has an inverse root.
pub(super) static ABORT: Factory = factory(|request| {
    let change = |kernel: &mut Kernel| {
        if has(kernel, ScalarOp::Rsqrt) {
            std::process::abort();
        }
    };
    wrong(request, change, None)
});

const fn factory(make: fn(&Request) -> Result<Arc<dyn Backend>, Diag>) -> Factory {
    Factory { name: "cpu", kind: "cpu", is_numbered: false, make }
}

/// The CPU's backend, with a change of kernels that it does not know of.
struct Wrong {
    inner: Arc<dyn Backend>,
    change: fn(&mut Kernel),
    passes: Vec<KernelPass>,
}

fn wrong(
    request: &Request,
    change: fn(&mut Kernel),
    pass: Option<KernelPass>,
) -> Result<Arc<dyn Backend>, Diag> {
    let inner = (litz_cpu::CPU.make)(request)?;
    let passes = inner.passes().iter().copied().chain(pass).collect();
    Ok(Arc::new(Wrong { inner, change, passes }))
}

impl Backend for Wrong {
    fn target(&self) -> &Target {
        self.inner.target()
    }

    fn passes(&self) -> &[KernelPass] {
        &self.passes
    }

    fn kernels_per_text(&self) -> usize {
        self.inner.kernels_per_text()
    }

    fn emit(&self, kernels: &[Kernel]) -> Result<String, BackendError> {
        let mut kernels = kernels.to_vec();
        kernels.iter_mut().for_each(self.change);
        self.inner.emit(&kernels)
    }

    fn verify(&self, text: &str) -> Result<(), BackendError> {
        self.inner.verify(text)
    }

    fn assemble(&self, text: &str) -> Result<Vec<u8>, BackendError> {
        self.inner.assemble(text)
    }

    fn listing(&self, text: &str) -> Result<Option<String>, BackendError> {
        self.inner.listing(text)
    }

    fn key(&self) -> String {
        self.inner.key()
    }

    fn machine(&self) -> Machine {
        self.inner.machine()
    }

    fn check_machine(&self) -> Result<(), Diag> {
        self.inner.check_machine()
    }

    fn load(
        &self,
        kernels: &[Kernel],
        objects: &[Vec<u8>],
        threads: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError> {
        self.inner.load(kernels, objects, threads)
    }
}

fn each_op(kernel: &mut Kernel, change: &mut dyn FnMut(&mut Op)) {
    visit_mut(&mut kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Let { op, .. }) = stmt {
            change(op);
        }
    });
}

fn replace(kernel: &mut Kernel, from: ScalarOp, to: ScalarOp) {
    each_op(kernel, &mut |op| match op {
        Op::Call(called, _) if *called == from => *called = to,
        _ => {}
    });
}

fn has(kernel: &Kernel, wanted: ScalarOp) -> bool {
    let mut found = false;
    visit(&kernel.body, &mut |stmt| {
        found |= matches!(stmt, Stmt::Act(Act::Let { op: Op::Call(op, _), .. }) if *op == wanted);
    });
    found
}
