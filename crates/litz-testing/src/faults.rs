//! Puts faults into the compiler, to see whether `litz minify` and `litz bisect` find them.
//!
//! A fault is a pass in the list of passes that is false in a special case, or a backend around the CPU's that changes kernels, or crashes. Nothing of it
//! is in what users have.

mod kernels;
mod model;
mod passes;

use std::path::Path;
use std::sync::OnceLock;

use litz::attempt::Check;
use litz::case::Case;
use litz::{Factory, Model, Options, Passes, made_up};
use litz_ir::Diags;
use litz_ir::graph::Graph;
use litz_ir::loops::Loops;
use litz_ir::target::{Cpu, Isa, Target};
use litz_passes::graph::GraphSettings;
use litz_passes::loops::Cx;
use litz_passes::{graph, loops};
pub use model::long;

/// A fault, and where it is to be found.
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// What it is in.
    pub place: Place,
    /// What shows it.
    pub check: Check,
    /// What it is tried on.
    pub subject: Subject,
}

/// What a fault is in.
#[derive(Clone, Copy)]
pub enum Place {
    /// A pass on graphs of the fault's name.
    Graph(fn(&mut Graph, &GraphSettings) -> Result<usize, Diags>),
    /// A pass on loops of the fault's name.
    Loops(fn(&mut Loops, &Cx<'_>) -> usize),
    /// The backend, which makes other code than kernels say.
    Code(&'static Factory),
    /// A pass of the backend on kernels, of this name.
    KernelPass(&'static Factory),
    /// The backend, which does not come to an end as it should in this step.
    Crash(&'static Factory, &'static str),
}

/// What a fault is tried on.
#[derive(Clone, Copy)]
pub enum Subject {
    /// A made graph of so many nodes.
    Long(usize),
    /// An exported model of the corpus.
    Corpus(&'static str),
}

/// Every fault.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "negative_of_absolute",
        place: Place::Graph(passes::negative_of_absolute),
        check: Check::Verify,
        subject: Subject::Long(400),
    },
    Fault {
        name: "difference_commutes",
        place: Place::Graph(passes::difference_commutes),
        check: Check::Verify,
        subject: Subject::Long(1000),
    },
    Fault {
        name: "slice_is_off_by_one",
        place: Place::Graph(passes::slice_is_off_by_one),
        check: Check::Verify,
        subject: Subject::Long(2000),
    },
    Fault {
        name: "no_relu_of_maximum",
        place: Place::Graph(passes::no_relu_of_maximum),
        check: Check::Verify,
        subject: Subject::Long(200),
    },
    Fault {
        name: "factor_is_lost",
        place: Place::Graph(passes::factor_is_lost),
        check: Check::Verify,
        subject: Subject::Long(600),
    },
    Fault {
        name: "strides_are_swapped",
        place: Place::Graph(passes::strides_are_swapped),
        check: Check::Verify,
        subject: Subject::Long(800),
    },
    Fault {
        name: "other_constant",
        place: Place::Loops(passes::other_constant),
        check: Check::Verify,
        subject: Subject::Long(400),
    },
    Fault {
        name: "indices_are_swapped",
        place: Place::Loops(passes::indices_are_swapped),
        check: Check::Verify,
        subject: Subject::Long(300),
    },
    Fault {
        name: "greatest_becomes_least",
        place: Place::Loops(passes::greatest_becomes_least),
        check: Check::Verify,
        subject: Subject::Long(1500),
    },
    Fault {
        name: "kernel_of_minimum",
        place: Place::Code(&kernels::MINIMUM),
        check: Check::Verify,
        subject: Subject::Long(400),
    },
    Fault {
        name: "kernel_of_arctangent",
        place: Place::Code(&kernels::ARCTANGENT),
        check: Check::Verify,
        subject: Subject::Long(2000),
    },
    Fault {
        name: "kernel_of_root",
        place: Place::Code(&kernels::ROOT),
        check: Check::Verify,
        subject: Subject::Long(500),
    },
    Fault {
        name: "kernel_of_factor",
        place: Place::Code(&kernels::FACTOR),
        check: Check::Verify,
        subject: Subject::Long(300),
    },
    Fault {
        name: "pass_on_cosines",
        place: Place::KernelPass(&kernels::COSINES),
        check: Check::Verify,
        subject: Subject::Long(700),
    },
    Fault {
        name: "panic_at_floor",
        place: Place::Graph(passes::panic_at_floor),
        check: Check::Crash,
        subject: Subject::Long(2000),
    },
    Fault {
        name: "panic_at_sign",
        place: Place::Loops(passes::panic_at_sign),
        check: Check::Crash,
        subject: Subject::Long(1000),
    },
    Fault {
        name: "abort_at_average",
        place: Place::Crash(&kernels::ABORT, "kernels"),
        check: Check::Crash,
        subject: Subject::Corpus("t5_encoder"),
    },
    Fault {
        name: "panic_at_hardsigmoid",
        place: Place::Graph(passes::panic_at_hardsigmoid),
        check: Check::Crash,
        subject: Subject::Corpus("mobilenet_v3_large"),
    },
    Fault {
        name: "kernel_of_error_function",
        place: Place::Code(&kernels::ERROR),
        check: Check::Verify,
        subject: Subject::Corpus("minilm"),
    },
    Fault {
        name: "endless_at_clamp",
        place: Place::Graph(passes::endless_at_clamp),
        check: Check::Crash,
        subject: Subject::Corpus("minilm"),
    },
];

/// What a pass on kernels that is a fault is called.
pub use kernels::WRONG_PASS;

impl Fault {
    /// The fault of that name.
    pub fn named(name: &str) -> Option<&'static Fault> {
        FAULTS.iter().find(|fault| fault.name == name)
    }

    /// Options of a compiler that has the fault, for a CPU that every machine has that these run on.
    pub fn options(&'static self) -> Options {
        let target =
            Target::Cpu(Cpu::new(if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Sse2 }, 2));
        let mut options = Options { bind: false, ..Options::for_target(target) };
        options.passes = match self.place {
            Place::Graph(_) | Place::Loops(_) => self.passes(),
            Place::Code(_) | Place::KernelPass(_) | Place::Crash(..) => Passes::default(),
        };
        match self.place {
            Place::Code(factory) | Place::KernelPass(factory) | Place::Crash(factory, _) => {
                options.backend = factory
            }
            Place::Graph(_) | Place::Loops(_) => {}
        }
        options
    }

    /// The passes with a wrong one among them: made once, and kept as those of the compiler are.
    fn passes(&'static self) -> Passes {
        static MADE: OnceLock<Vec<Passes>> = OnceLock::new();
        let made = MADE.get_or_init(|| FAULTS.iter().map(Fault::with_its_pass).collect());
        let at = FAULTS.iter().position(|fault| fault.name == self.name);
        made[at.expect("invariant: it is one of the table")]
    }

    fn with_its_pass(&self) -> Passes {
        let mut passes = Passes::default();
        match self.place {
            Place::Graph(run) => {
                let mut all = passes.graph.to_vec();
                let behind = all.iter().position(|pass| pass.name == "cse").map_or(all.len(), |at| at + 1);
                all.insert(behind, graph::Pass { name: self.name, run, form: graph::Form::Placed });
                passes.graph = all.leak();
            }
            Place::Loops(run) => {
                let mut all = passes.loops.to_vec();
                let behind = all.iter().position(|pass| pass.name == "fold").map_or(all.len(), |at| at + 1);
                all.insert(behind, loops::Pass::new(self.name, run));
                passes.loops = all.leak();
            }
            Place::Code(_) | Place::KernelPass(_) | Place::Crash(..) => {}
        }
        passes
    }

    /// The call that shows it. None where the corpus, in this folder, does not have the model.
    pub fn case(&self, corpus: &Path) -> Option<Case> {
        match self.subject {
            Subject::Long(nodes) => Some(long(nodes, nodes as u64)),
            Subject::Corpus(name) => {
                let model = Model::open(corpus.join(format!("{name}.pt2"))).ok()?;
                let inputs = made_up::inputs(&made_up::of_model(&model), &model.imported.graph.facts).ok()?;
                Case::of_model(&model, inputs).ok()
            }
        }
    }

    /// What bisection has to name.
    pub fn step(&self) -> &'static str {
        match self.place {
            Place::Graph(_) | Place::Loops(_) => self.name,
            Place::Code(_) => "machine code",
            Place::KernelPass(_) => WRONG_PASS,
            Place::Crash(_, step) => step,
        }
    }
}
