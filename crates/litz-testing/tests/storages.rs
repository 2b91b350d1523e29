//! Random graphs of views, writes through views and scatters against tensors that share real memory.
//!
//! `LITZ_TEST_SAMPLE=10000` tries so many, and `LITZ_TEST_SEED` repeats a run. The text of the first graph that is wrong is printed with as
//! few of its lines as show it.

#![allow(missing_docs, reason = "a test")]

use litz_ir::target::Isa;
use litz_ir::text::graph::parse;
use litz_runtime::Tensor;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, Value};
use litz_testing::choices::Random;
use litz_testing::devices;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Graphs of a run; `LITZ_TEST_SAMPLE` says another number.
const SAMPLE: u64 = 300;

/// A tensor: elements of a memory that others may share.
#[derive(Clone, Debug)]
struct View {
    memory: usize,
    offset: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    /// Where each element is, in row-major order of coordinates.
    fn places(&self) -> Vec<usize> {
        let mut places = vec![self.offset];
        for (&size, &stride) in self.sizes.iter().zip(&self.strides) {
            places = places.iter().flat_map(|&at| (0..size).map(move |i| at + i * stride)).collect();
        }
        places
    }

    fn cut(&self, dim: usize, start: usize, count: usize, step: usize) -> View {
        let mut cut = self.clone();
        cut.offset += start * self.strides[dim];
        cut.sizes[dim] = count;
        cut.strides[dim] *= step;
        cut
    }

    fn without(&self, dim: usize) -> View {
        let mut cut = self.clone();
        cut.sizes.remove(dim);
        cut.strides.remove(dim);
        cut
    }
}

/// A line of a graph: what it does to the tensors before it. `usize`s count tensors; a line that gives one adds it at the end.
#[derive(Clone, Debug)]
enum Line {
    Neg(usize),
    Add(usize),
    Clone(usize),
    Max(usize, usize),
    Slice {
        of: usize,
        dim: usize,
        start: usize,
        end: usize,
        step: usize,
    },
    Select {
        of: usize,
        dim: usize,
        at: usize,
    },
    Transpose {
        of: usize,
        dims: [usize; 2],
    },
    Diagonal(usize),
    SliceScatter {
        of: usize,
        from: usize,
        dim: usize,
        start: usize,
        end: usize,
        step: usize,
    },
    SelectScatter {
        of: usize,
        from: usize,
        dim: usize,
        at: usize,
    },
    /// Rows 0, 1 .. of `from`, as many as there are positions, to the positions.
    Put {
        of: usize,
        from: usize,
        in_place: bool,
    },
    NegInPlace(usize),
    AddInPlace(usize),
    Zero(usize),
    Copy {
        to: usize,
        from: usize,
    },
}

/// What lines compute with real memory, and their text.
struct Machine {
    memories: Vec<Vec<f32>>,
    views: Vec<View>,
    written: Vec<bool>,
    positions: [i64; 2],
    text: String,
}

fn numbers(list: &[usize]) -> String {
    list.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn contiguous(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim].max(1);
    }
    strides
}

impl Machine {
    fn new(inputs: &[(Vec<usize>, Vec<f32>)], positions: [i64; 2]) -> Machine {
        let mut machine = Machine {
            memories: Vec::new(),
            views: Vec::new(),
            written: vec![false; inputs.len()],
            positions,
            text: "graph @g on cpu {\n".to_owned(),
        };
        for (sizes, elements) in inputs {
            machine.text += &format!("  %v{}: f32[{}] = input\n", machine.views.len(), numbers(sizes));
            machine.fresh(sizes.clone(), elements.clone());
        }
        machine.text += "  %at: i64[2] = input\n";
        machine
    }

    fn read(&self, view: &View) -> Vec<f32> {
        view.places().into_iter().map(|at| self.memories[view.memory][at]).collect()
    }

    fn fresh(&mut self, sizes: Vec<usize>, elements: Vec<f32>) {
        self.views.push(View { memory: self.memories.len(), offset: 0, strides: contiguous(&sizes), sizes });
        self.memories.push(elements);
    }

    fn write(&mut self, view: &View, elements: &[f32]) {
        for (at, element) in view.places().into_iter().zip(elements) {
            self.memories[view.memory][at] = *element;
        }
        if let Some(written) = self.written.get_mut(view.memory) {
            *written = true;
        }
    }

    /// Elements of `view` with those of `part` of it replaced. `part` is a view of the same memory.
    fn replaced(&self, view: &View, part: &View, new: &[f32]) -> Vec<f32> {
        let mut memory = self.memories[view.memory].clone();
        part.places().into_iter().zip(new).for_each(|(at, element)| memory[at] = *element);
        view.places().into_iter().map(|at| memory[at]).collect()
    }

    /// Elements of a view with rows put to the positions.
    fn put(&self, view: &View, from: &View) -> Vec<f32> {
        let row: usize = view.sizes[1..].iter().product();
        let (mut all, new) = (self.read(view), self.read(from));
        for (number, &position) in self.positions.iter().enumerate() {
            let position = usize::try_from(position).expect("a position");
            all[position * row..(position + 1) * row].copy_from_slice(&new[number * row..(number + 1) * row]);
        }
        all
    }

    /// Does a line, unless what it takes does not fit.
    fn run(&mut self, line: &Line) -> Option<()> {
        let view = |at: usize| self.views.get(at).cloned();
        let fits = |dim: usize, view: &View| (dim < view.sizes.len()).then_some(());
        let (text, part);
        match *line {
            Line::Neg(of) | Line::Add(of) | Line::Clone(of) => {
                let of_view = view(of)?;
                let old = self.read(&of_view);
                let (op, new): (String, Vec<f32>) = match line {
                    Line::Neg(_) => (format!("aten.neg.default(%v{of})"), old.iter().map(|x| -x).collect()),
                    Line::Add(_) => {
                        (format!("aten.add.Tensor(%v{of}, 1, 1)"), old.iter().map(|x| x + 1.0).collect())
                    }
                    _ => (format!("aten.clone.default(%v{of})"), old),
                };
                (text, part) = (op, None);
                self.fresh(of_view.sizes, new);
            }
            Line::Max(a, b) => {
                let (a_view, b_view) = (view(a)?, view(b)?);
                if a_view.sizes != b_view.sizes {
                    return None;
                }
                let new = self.read(&a_view).iter().zip(self.read(&b_view)).map(|(a, b)| a.max(b)).collect();
                (text, part) = (format!("aten.maximum.default(%v{a}, %v{b})"), None);
                self.fresh(a_view.sizes, new);
            }
            Line::Slice { of, dim, start, end, step } => {
                let whole = view(of)?;
                fits(dim, &whole)?;
                let cut = cut(&whole, dim, start, end, step)?;
                (text, part) =
                    (format!("aten.slice.Tensor(%v{of}, {dim}, {start}, {end}, {step})"), Some(cut));
            }
            Line::Select { of, dim, at } => {
                let whole = view(of)?;
                fits(dim, &whole)?;
                if at >= whole.sizes[dim] {
                    return None;
                }
                let cut = whole.cut(dim, at, 1, 1).without(dim);
                (text, part) = (format!("aten.select.int(%v{of}, {dim}, {at})"), Some(cut));
            }
            Line::Transpose { of, dims } => {
                let mut whole = view(of)?;
                dims.iter().try_for_each(|&dim| fits(dim, &whole))?;
                whole.sizes.swap(dims[0], dims[1]);
                whole.strides.swap(dims[0], dims[1]);
                let op = format!("aten.transpose.int(%v{of}, {}, {})", dims[0], dims[1]);
                (text, part) = (op, Some(whole));
            }
            Line::Diagonal(of) => {
                let whole = view(of)?;
                let (&[rows, columns], &[down, right]) = (&whole.sizes[..], &whole.strides[..]) else {
                    return None;
                };
                let (sizes, strides) = (vec![rows.min(columns)], vec![down + right]);
                let op = format!("aten.diagonal.default(%v{of}, 0, 0, 1)");
                (text, part) = (op, Some(View { sizes, strides, ..whole }));
            }
            Line::SliceScatter { of, from, dim, start, end, step } => {
                let (whole, new) = (view(of)?, view(from)?);
                fits(dim, &whole)?;
                let cut = cut(&whole, dim, start, end, step)?;
                if cut.sizes != new.sizes {
                    return None;
                }
                let elements = self.replaced(&whole, &cut, &self.read(&new));
                let op = "aten.slice_scatter.default";
                (text, part) = (format!("{op}(%v{of}, %v{from}, {dim}, {start}, {end}, {step})"), None);
                self.fresh(whole.sizes, elements);
            }
            Line::SelectScatter { of, from, dim, at } => {
                let (whole, new) = (view(of)?, view(from)?);
                fits(dim, &whole)?;
                if at >= whole.sizes[dim] {
                    return None;
                }
                let cut = whole.cut(dim, at, 1, 1).without(dim);
                if cut.sizes != new.sizes {
                    return None;
                }
                let elements = self.replaced(&whole, &cut, &self.read(&new));
                (text, part) = (format!("aten.select_scatter.default(%v{of}, %v{from}, {dim}, {at})"), None);
                self.fresh(whole.sizes, elements);
            }
            Line::Put { of, from, in_place } => {
                let (whole, new) = (view(of)?, view(from)?);
                fits(0, &whole)?;
                let reach = usize::try_from(*self.positions.iter().max()?).ok()?;
                if new.sizes.first() != Some(&2)
                    || new.sizes[1..] != whole.sizes[1..]
                    || reach >= whole.sizes[0]
                {
                    return None;
                }
                let elements = self.put(&whole, &new);
                let name = if in_place { "index_put_" } else { "index_put" };
                text = format!("aten.{name}.default(%v{of}, [%at], %v{from}, false)");
                part = in_place.then(|| whole.clone());
                match in_place {
                    true => self.write(&whole, &elements),
                    false => self.fresh(whole.sizes, elements),
                }
            }
            Line::NegInPlace(of) | Line::AddInPlace(of) | Line::Zero(of) => {
                let whole = view(of)?;
                let old = self.read(&whole);
                let (op, new): (String, Vec<f32>) = match line {
                    Line::NegInPlace(_) => {
                        (format!("aten.neg_.default(%v{of})"), old.iter().map(|x| -x).collect())
                    }
                    Line::AddInPlace(_) => {
                        (format!("aten.add_.Tensor(%v{of}, 1, 1)"), old.iter().map(|x| x + 1.0).collect())
                    }
                    _ => (format!("aten.zero_.default(%v{of})"), vec![0.0; old.len()]),
                };
                self.write(&whole, &new);
                (text, part) = (op, Some(whole));
            }
            Line::Copy { to, from } => {
                let (whole, new) = (view(to)?, view(from)?);
                if whole.sizes != new.sizes {
                    return None;
                }
                let elements = self.read(&new);
                self.write(&whole, &elements);
                (text, part) = (format!("aten.copy_.default(%v{to}, %v{from}, false)"), Some(whole));
            }
        }
        self.views.extend(part);
        let made = self.views.last()?;
        let ty = format!("f32[{}]{{{}}}", numbers(&made.sizes), numbers(&made.strides));
        self.text += &format!("  %v{}: {ty} = {text}\n", self.views.len() - 1);
        Some(())
    }
}

/// What a slice takes; none where it takes nothing, for which there is a case in the tests of operators.
fn cut(whole: &View, dim: usize, start: usize, end: usize, step: usize) -> Option<View> {
    let end = end.min(whole.sizes[dim]);
    (start < end).then(|| whole.cut(dim, start, (end - start).div_ceil(step), step))
}

fn line(random: &mut Random, views: usize) -> Line {
    let mut below = |limit: usize| random.below(limit as u64) as usize;
    // Late tensors are used more often than early ones.
    let of = views - 1 - below(views).min(below(views));
    let from = below(views);
    let (dim, start, step) = (below(3), below(4), 1 + below(2));
    let end = start + 1 + below(4);
    match below(20) {
        0 => Line::Neg(of),
        1 => Line::Add(of),
        2 => Line::Clone(of),
        3 => Line::Max(of, from),
        4..=6 => Line::Slice { of, dim, start, end, step },
        7 | 8 => Line::Select { of, dim, at: start },
        9 => Line::Transpose { of, dims: [dim, below(3)] },
        10 => Line::Diagonal(of),
        11 => Line::SliceScatter { of, from, dim, start, end, step },
        12 => Line::SelectScatter { of, from, dim, at: start },
        13 | 14 => Line::Put { of, from, in_place: below(2) == 0 },
        15 => Line::NegInPlace(of),
        16 => Line::AddInPlace(of),
        17 => Line::Zero(of),
        _ => Line::Copy { to: of, from },
    }
}

/// Inputs, lines and which tensors are returned.
#[derive(Clone)]
struct Trial {
    inputs: Vec<(Vec<usize>, Vec<f32>)>,
    positions: [i64; 2],
    lines: Vec<Line>,
    returned: u64,
}

impl Trial {
    fn new(random: &mut Random) -> Trial {
        let sizes = |random: &mut Random| -> Vec<usize> {
            let rank = 1 + random.below(3) as usize;
            let size = |random: &mut Random| match random.below(12) {
                0 => 1,
                1 => 2,
                _ => 2 + random.below(4) as usize,
            };
            (0..rank).map(|_| size(random)).collect()
        };
        let inputs: Vec<(Vec<usize>, Vec<f32>)> = (0..1 + random.below(3))
            .map(|_| {
                let sizes = sizes(random);
                let count = sizes.iter().product::<usize>();
                (sizes, (0..count).map(|_| random.below(64) as f32 - 32.0).collect())
            })
            .collect();
        let positions = [random.below(3) as i64, random.below(3) as i64];
        let mut machine = Machine::new(&inputs, positions);
        let (mut lines, wanted) = (Vec::new(), 2 + random.below(24) as usize);
        for _ in 0..20 * wanted {
            let line = line(random, machine.views.len());
            if lines.len() < wanted && machine.run(&line).is_some() {
                lines.push(line);
            }
        }
        Trial { inputs, positions, lines, returned: random.next() }
    }

    /// What is wrong, with the text; nothing if all is as it should be.
    fn wrong(&self, pools: &mut HashMap<usize, Arc<ThreadPool>>) -> Option<String> {
        let mut machine = Machine::new(&self.inputs, self.positions);
        for line in &self.lines {
            machine.run(line)?;
        }
        let is_returned = |at: &usize| self.returned >> (at % 64) & 3 == 0;
        let returned: Vec<usize> = (0..machine.views.len()).filter(is_returned).take(4).collect();
        let names: Vec<String> = returned.iter().map(|at| format!("%v{at}")).collect();
        let text = format!("{}  return {}\n}}\n", machine.text, names.join(", "));
        let mut expected: Vec<Vec<f32>> =
            returned.iter().map(|&at| machine.read(&machine.views[at])).collect();
        let updated = (0..self.inputs.len()).filter(|&input| machine.written[input]);
        expected.extend(updated.map(|input| machine.memories[input].clone()));
        let found = |what: String| Some(format!("{what}\n{text}"));
        let graph = match parse(&text) {
            Ok(graph) => graph,
            Err(diags) => return found(diags[0].to_string()),
        };
        let threads = 1 + (self.returned % 2) as usize * 2;
        let options = devices::options(Isa::Avx2, threads as u32);
        let backend = litz::backend(&options).expect("there is a backend");
        let realized = match devices::realize_any(graph, &*backend, &options) {
            Ok((realized, _)) => realized,
            Err(error) => return found(error.to_string()),
        };
        let inputs: Vec<Tensor> = self.tensors();
        let before: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let pool = pools.entry(threads).or_insert_with(|| Arc::new(ThreadPool::new(threads)));
        let native = devices::on_native(&realized, &*backend, &options, &Arc::clone(pool));
        for device in [devices::on_reference(&realized).expect("kernels"), native.expect("machine code")] {
            let none: HashMap<String, Tensor> = HashMap::new();
            let executable = Executable::new(&realized.program, &realized.kernels, device, &none);
            let results = executable.and_then(|executable| executable.run(&inputs));
            let results: Vec<Vec<f64>> = match results {
                Ok(results) => results.iter().filter_map(Value::tensor).map(Tensor::to_f64).collect(),
                Err(error) => return found(error.to_string()),
            };
            let wanted: Vec<Vec<f64>> =
                expected.iter().map(|list| list.iter().copied().map(f64::from).collect()).collect();
            if results != wanted {
                return found(format!("expected {wanted:?}\nfound    {results:?}"));
            }
            if inputs.iter().map(Tensor::to_f64).ne(before.iter().cloned()) {
                return found("an input was changed".to_owned());
            }
        }
        None
    }

    fn tensors(&self) -> Vec<Tensor> {
        let tensors = self.inputs.iter().map(|(sizes, elements)| Tensor::from_slice(sizes, elements));
        let positions = Tensor::from_slice(&[2], &self.positions);
        tensors.chain([positions]).map(|tensor| tensor.expect("lengths match")).collect()
    }

    /// The graph with lines left out while it stays wrong; lines that others take cannot go before these.
    fn shrunk(mut self, pools: &mut HashMap<usize, Arc<ThreadPool>>) -> Trial {
        for at in (0..self.lines.len()).rev() {
            let mut fewer = self.clone();
            fewer.lines.truncate(at);
            if fewer.wrong(pools).is_some() {
                self = fewer;
            }
        }
        self
    }
}

/// IP-48: values, inputs that are not updated, and results that share no memory are as with real storages.
#[test]
fn writes_through_views_are_as_in_shared_memory() {
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = given("LITZ_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let sample = given("LITZ_TEST_SAMPLE").unwrap_or(SAMPLE);
    println!("LITZ_TEST_SEED={seed} LITZ_TEST_SAMPLE={sample}");
    let mut pools = HashMap::new();
    let (mut lines, mut writes) = (0, 0);
    for number in 0..sample {
        let trial = Trial::new(&mut Random::new(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9))));
        if trial.wrong(&mut pools).is_some() {
            let trial = trial.shrunk(&mut pools);
            panic!(
                "graph {number} of LITZ_TEST_SEED={seed}: {}",
                trial.wrong(&mut pools).unwrap_or_default()
            );
        }
        lines += trial.lines.len();
        let is_write = |line: &&Line| matches!(line, Line::Copy { .. } | Line::Zero(_) | Line::Put { .. });
        writes += trial.lines.iter().filter(is_write).count();
    }
    println!("{sample} graphs of {lines} lines, {writes} of which write: none wrong");
    assert!(writes * 20 > lines, "{writes} writes of {lines} lines: the generator has dried up");
}
