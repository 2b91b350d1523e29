//! Compares random programs in which the host writes to tensors and to parts of them with what happens in real memory.

mod toy_host;

use litz::Tensor;
use litz_runtime::reference;
use std::collections::HashMap;
use std::fmt::Write;
use toy_host::Toy;
use toy_host::compiled::{NoWeights, compile, numbers, tensor};

const DECLARED: &str = "op mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()
  op mylib.both.default(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor
  op mylib.log.default(Tensor x) -> () effect log
  op mylib.inc.default(Tensor x) -> Tensor effect log
  op mylib.inc_.default(Tensor(a!) x) -> Tensor(a!)
  op mylib.up.default(Tensor x) -> Tensor
  op mylib.up_.default(Tensor(a!) x) -> Tensor(a!)
";

/// Numbers that follow from a seed (xorshift).
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % count
    }
}

/// A tensor: where its elements are in a storage.
#[derive(Clone)]
struct View {
    name: String,
    storage: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl View {
    fn places(&self) -> Vec<usize> {
        let mut places = vec![self.offset];
        for (&size, &stride) in self.sizes.iter().zip(&self.strides) {
            places = places.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
        }
        places
    }

    fn ty(&self) -> String {
        format!("f32{:?}{{{}}}", self.sizes, format!("{:?}", self.strides).trim_matches(['[', ']']))
    }
}

struct Program {
    text: String,
    storages: Vec<Vec<f64>>,
    views: Vec<View>,
    inputs: usize,
    written: Vec<bool>,
    calls: Vec<String>,
}

fn contiguous(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim];
    }
    strides
}

impl Program {
    fn random(seed: u64) -> Program {
        let mut choices = Choices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut program = Program {
            text: DECLARED.to_owned(),
            storages: Vec::new(),
            views: Vec::new(),
            inputs: 2,
            written: Vec::new(),
            calls: Vec::new(),
        };
        for at in 0..program.inputs {
            let values = (0..12).map(|value| (value + 3 * at) as f64 - 5.0).collect();
            let view = program.fresh(vec![3, 4], values);
            program.line(&format!("%{}: {} = input", view.name, view.ty()));
        }
        for _ in 0..4 + choices.below(8) {
            program.step(&mut choices);
        }
        let shown: Vec<View> = program.views.iter().skip(2).cloned().collect();
        let shown: Vec<View> = shown.into_iter().filter(|_| choices.below(2) == 0).collect();
        let names: Vec<String> = shown.iter().map(|view| format!("%{}", view.name)).collect();
        program.line(&format!("return {}", names.join(", ")));
        program.views = shown;
        program
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "  {line}").expect("a string takes all");
    }

    fn fresh(&mut self, sizes: Vec<usize>, values: Vec<f64>) -> View {
        self.storages.push(values);
        self.written.push(false);
        let strides = contiguous(&sizes);
        let (name, storage) =
            (format!("v{}", self.storages.len() + 100 * self.views.len()), self.storages.len() - 1);
        let view = View { name, storage, sizes, strides, offset: 0 };
        self.views.push(view.clone());
        view
    }

    fn values(&self, view: &View) -> Vec<f64> {
        view.places().iter().map(|&at| self.storages[view.storage][at]).collect()
    }

    fn change(&mut self, view: &View, f: impl Fn(f64) -> f64) {
        self.written[view.storage] = true;
        for at in view.places() {
            self.storages[view.storage][at] = f(self.storages[view.storage][at]);
        }
    }

    fn pick(&self, choices: &mut Choices) -> View {
        // Late ones are likelier, so that chains come about.
        let count = self.views.len();
        let at = choices.below(count).max(choices.below(count));
        self.views[at].clone()
    }

    fn step(&mut self, choices: &mut Choices) {
        let a = self.pick(choices);
        match choices.below(12) {
            // Of others the result lies in the order of the operand.
            0 | 1 if !a.strides.is_sorted_by(|one, next| one >= next) => {}
            0 => {
                let values = self.values(&a).iter().map(|value| value + 2.0).collect();
                let y = self.fresh(a.sizes.clone(), values);
                self.line(&format!("%{}: {} = aten.add.Scalar(%{}, 2, 1)", y.name, y.ty(), a.name));
            }
            1 => {
                let like = self
                    .views
                    .iter()
                    .filter(|view| (&view.sizes, &view.strides) == (&a.sizes, &a.strides))
                    .cloned()
                    .collect::<Vec<_>>();
                let b = like[choices.below(like.len())].clone();
                let values = self.values(&a).iter().zip(self.values(&b)).map(|(a, b)| a - b).collect();
                let y = self.fresh(a.sizes.clone(), values);
                let (y_type, y) = (y.ty(), y.name);
                self.line(&format!("%{y}: {y_type} = aten.sub.Tensor(%{}, %{}, 1)", a.name, b.name));
            }
            2..=5 => self.view(choices, &a),
            6 | 7 => {
                let b = self.pick(choices);
                self.line(&format!("mylib.two.default(%{}, %{})", a.name, b.name));
                self.change(&a, |value| value + 1.0);
                self.change(&b, |value| 2.0 * value);
                self.calls.push("mylib.two.default".to_owned());
            }
            8 => {
                let (b, c) = (self.pick(choices), self.pick(choices));
                let has_x = choices.below(2) == 0;
                if has_x {
                    self.change(&a, |value| value + 1.0);
                }
                self.change(&b, |value| 3.0 * value);
                self.change(&c, |value| 3.0 * value);
                let y = self.fresh(b.sizes.clone(), self.values(&b));
                let x = if has_x { format!("%{}", a.name) } else { "none".to_owned() };
                let list = format!("[%{}, %{}]", b.name, c.name);
                self.line(&format!("%{}: {} = mylib.both.default({x}, {list})", y.name, y.ty()));
                self.calls.push("mylib.both.default".to_owned());
            }
            9 => {
                self.line(&format!(
                    "%unused{}: {} = aten.add_.Scalar(%{}, 1, 1)",
                    self.text.len(),
                    a.ty(),
                    a.name
                ));
                self.change(&a, |value| value + 1.0);
            }
            10 => {
                let op = ["inc", "up"][choices.below(2)];
                let values = self.values(&a).iter().map(|value| value + 1.0).collect();
                let y = self.fresh(a.sizes.clone(), values);
                self.line(&format!("%{}: {} = mylib.{op}.default(%{})", y.name, y.ty(), a.name));
            }
            _ => {
                // What it gives is its argument.
                let mut y = a.clone();
                y.name = format!("r{}", self.text.len());
                self.line(&format!("%{}: {} = mylib.up_.default(%{})", y.name, y.ty(), a.name));
                self.change(&a, |value| value + 1.0);
                self.views.push(y);
            }
        }
    }

    fn view(&mut self, choices: &mut Choices, a: &View) {
        let mut y = a.clone();
        y.name = format!("w{}", self.text.len());
        if a.sizes.is_empty() {
            return;
        }
        let dim = choices.below(a.sizes.len());
        let call = match choices.below(4) {
            0 => {
                let at = choices.below(a.sizes[dim]);
                y.offset += at * a.strides[dim];
                y.sizes.remove(dim);
                y.strides.remove(dim);
                format!("aten.select.int(%{}, {dim}, {at})", a.name)
            }
            1 | 2 => {
                let start = choices.below(a.sizes[dim]);
                let end = start + 1 + choices.below(a.sizes[dim] - start);
                let step = 1 + choices.below(2);
                y.offset += start * a.strides[dim];
                y.sizes[dim] = (end - start).div_ceil(step);
                y.strides[dim] *= step;
                format!("aten.slice.Tensor(%{}, {dim}, {start}, {end}, {step})", a.name)
            }
            _ => {
                y.sizes.reverse();
                y.strides.reverse();
                let dims: Vec<usize> = (0..a.sizes.len()).rev().collect();
                format!("aten.permute.default(%{}, {dims:?})", a.name)
            }
        };
        self.line(&format!("%{}: {} = {call}", y.name, y.ty()));
        self.views.push(y);
    }
}

fn input(at: usize) -> Tensor {
    let values: Vec<f32> = (0..12).map(|value| (value + 3 * at) as f32 - 5.0).collect();
    tensor(&[3, 4], &values)
}

#[test]
fn random_writes_are_those_of_memory() {
    let count = std::env::var("LITZ_TEST_SAMPLE").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    let (mut in_parts, mut sharing) = (0, 0);
    for seed in 0..count {
        let program = Program::random(seed);
        let mut expected: Vec<Vec<f64>> = program.views.iter().map(|view| program.values(view)).collect();
        let outputs = expected.len();
        let updated = (0..program.inputs).filter(|&at| program.written[at]);
        expected.extend(updated.map(|at| program.storages[at].clone()));
        let toy = Toy::new();
        let compiled = compile(&program.text, &toy);
        let text = compiled.loops.to_string();
        in_parts += u64::from(text.contains("] + "));
        sharing += u64::from(text.contains(") sharing "));
        let inputs: Vec<Tensor> = (0..program.inputs).map(input).collect();
        for (device, executable) in compiled.executables.iter().enumerate() {
            for _ in 0..2 {
                let found = executable.run(&inputs).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let found = numbers(&found);
                assert_eq!(found, expected, "seed {seed} on {device}\n{}\n{}", program.text, compiled.loops);
            }
        }
        let loops = &compiled.loops;
        let found = reference::loops::run_with(loops, &HashMap::new(), &inputs, &NoWeights, Some(&*toy));
        let found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{loops}"));
        assert_eq!(numbers(&found.outputs), expected[..outputs], "seed {seed}\n{}\n{loops}", program.text);
    }
    assert!(in_parts * 20 > count, "{in_parts} of {count} programs give the host parts of buffers");
    assert!(sharing * 20 > count, "{sharing} of {count} programs give the host tensors that share elements");
}

/// What each device gives for inputs.
#[track_caller]
fn check(body: &str, inputs: &[Tensor], expected: &[Vec<f64>], calls: usize) {
    let toy = Toy::new();
    let compiled = compile(body, &toy);
    for executable in &compiled.executables {
        for _ in 0..2 {
            let found = executable.run(inputs).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(numbers(&found), expected, "{}", compiled.loops);
            assert_eq!(toy.take().len(), calls);
        }
    }
}

#[test]
fn parts_of_symbolic_sizes_are_written_in_place() {
    let body = "sym s0 in [1, 64]
        op mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()
        %x: f32[s0, 4] = input
        %s: f32[s0, 4] = aten.add.Scalar(%x, 1, 1)
        %a: f32[1, 4] = aten.slice.Tensor(%s, 0, 0, 1, 1)
        %b: f32[s0 - 1, 4] = aten.slice.Tensor(%s, 0, 1, 9223372036854775807, 1)
        mylib.two.default(%a, %b)
        return %s";
    let loops = compile(body, &Toy::new()).loops.to_string();
    assert!(loops.contains("update s as [1, 4], update s as [s0 - 1, 4] + 4"), "{loops}");
    for rows in [1usize, 2, 7] {
        let values: Vec<f32> = (0..rows * 4).map(|value| value as f32).collect();
        let expected = (0..rows * 4).map(|at| {
            let value = at as f64 + 1.0;
            if at < 4 { value + 1.0 } else { 2.0 * value }
        });
        check(body, &[tensor(&[rows, 4], &values)], &[expected.collect()], 1);
    }
}

/// In branches and in bodies of loops the host writes to what is computed there, in place, and to copies of what is around.
#[test]
fn branches_and_loops_write_to_what_is_theirs() {
    let ops = "op mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()
        op mylib.up.default(Tensor x) -> Tensor
        op mylib.up_.default(Tensor(a!) x) -> Tensor(a!)";
    let then = "%s: f32[2, 4] = aten.add.Scalar(%a, 1, 1)
          %p: f32[4] = aten.select.int(%s, 0, 0)
          %q: f32[4] = aten.select.int(%s, 0, 1)
          mylib.two.default(%p, %q)
          %r: f32[2, 4] = mylib.up.default(%s)
          %t: f32[2, 4] = mylib.up.default(%a)
          %b: f32[2, 4] = aten.sub.Tensor(%r, %t, 1)";
    let branch = format!(
        "{ops}
        graph @then on cpu {{
          %a: f32[2, 4] = input
          {then}
          return %b
        }}
        graph @else on cpu {{
          %a: f32[2, 4] = input
          %b: f32[2, 4] = aten.neg.default(%a)
          return %b
        }}
        %p: bool[] = input
        %x: f32[2, 4] = input
        %y: f32[2, 4] = higher_order.cond.default(%p, @then, @else, [%x])
        %z: f32[2, 4] = aten.add.Tensor(%y, %x, 1)
        return %z"
    );
    let values: Vec<f32> = (0..8).map(|value| value as f32).collect();
    let body = |at: usize| {
        let value = at as f64;
        // What `two` leaves and 1, less the value and 1.
        let written = if at < 4 { value + 2.0 } else { 2.0 * (value + 1.0) };
        written + 1.0 - (value + 1.0)
    };
    let x = || tensor(&[2, 4], &values);
    let truth = |holds: bool| Tensor::scalar(holds).expect("one element");
    let expected: Vec<f64> = (0..8).map(|at| body(at) + at as f64).collect();
    check(&branch, &[truth(true), x()], &[expected], 3);
    check(&branch, &[truth(false), x()], &[vec![0.0; 8]], 0);
    let repeated = format!(
        "{ops}
        graph @cond on cpu {{
          %i: i64[] = input
          %c: f32[2, 4] = input
          %more: bool[] = aten.lt.Scalar(%i, 3)
          return %more
        }}
        graph @body on cpu {{
          %i: i64[] = input
          %c: f32[2, 4] = input
          %j: i64[] = aten.add.Scalar(%i, 1, 1)
          %s: f32[2, 4] = mylib.up.default(%c)
          %p: f32[4] = aten.select.int(%s, 0, 0)
          %q: f32[4] = aten.select.int(%s, 0, 1)
          mylib.two.default(%p, %q)
          return %j, %s
        }}
        %n: i64[] = input
        %x: f32[2, 4] = input
        %i: i64[], %y: f32[2, 4] = higher_order.while_loop.default(@cond, @body, [%n, %x], [])
        %z: f32[2, 4] = aten.sub.Tensor(%y, %x, 1)
        return %z"
    );
    let step = |at: usize, value: f64| if at < 4 { value + 2.0 } else { 2.0 * (value + 1.0) };
    for first in [0i64, 2, 3] {
        let expected = (0..8).map(|at| (first..3).fold(at as f64, |value, _| step(at, value)) - at as f64);
        let inputs = [Tensor::scalar(first).expect("one element"), x()];
        check(&repeated, &inputs, &[expected.collect()], 2 * (3 - first) as usize);
    }
}
