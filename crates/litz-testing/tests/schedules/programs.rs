//! Generates small loops programs as text: pointwise chains, reductions, products and scans over odd sizes.
//!
//! Inputs hold small integers, and every sum is clamped again, so that all values are integers that f32 has exactly:
//! results do not depend on the order of additions.

use litz_testing::choices::Choices;
use std::fmt::Write;

/// A program and the values of its sizes.
#[derive(Clone, Debug)]
pub struct Case {
    pub text: String,
    /// Sizes of each input.
    pub inputs: Vec<Vec<usize>>,
    /// Symbols and their values.
    pub symbols: Vec<(String, i64)>,
}

/// Values of sizes: none divides another's tile, some are empty or one.
const SIZES: [usize; 13] = [3, 5, 7, 8, 13, 16, 17, 1, 2, 20, 33, 4, 0];

const COMBINE: [&str; 5] = ["add", "sub", "max", "min", "mul"];
const REDUCE: [&str; 3] = ["sum", "max", "min"];

/// A buffer: its name, and which of the sizes its dimensions have.
#[derive(Clone)]
struct Array {
    name: String,
    dims: Vec<usize>,
}

struct Writer<'c, 'b> {
    choices: &'c mut Choices<'b>,
    /// How each size is written.
    sizes: Vec<String>,
    arrays: Vec<Array>,
    bufs: String,
    nests: String,
    /// Instructions of the nest being written.
    insts: usize,
    /// Most nests make a matrix, of the one before.
    is_chain: bool,
}

/// Makes a program.
pub fn program(choices: &mut Choices<'_>) -> Case {
    let (mut header, mut sizes, mut values, mut symbols) =
        (String::new(), Vec::new(), Vec::new(), Vec::new());
    // A chain of buffers of one type, which may be written over each other.
    let is_chain = choices.once_in(2);
    for at in 0..if is_chain { 1 } else { 3 } {
        let value = choices.pick(&SIZES);
        values.push(value);
        if choices.once_in(2) {
            let name = format!("s{at}");
            let lo = if value == 0 { 0 } else { choices.below(2).min(value) };
            let multiple = if value.is_multiple_of(4) && choices.once_in(3) { " multiple 4" } else { "" };
            let lo = if multiple.is_empty() { lo } else { 4 * lo };
            let lo = lo.min(value);
            writeln!(header, "  sym {name} in [{lo}, 64]{multiple}").expect("strings take all");
            symbols.push((name.clone(), value as i64));
            sizes.push(name);
        } else {
            sizes.push(value.to_string());
        }
    }
    let (bufs, nests) = (String::new(), String::new());
    let mut writer = Writer { choices, sizes, arrays: Vec::new(), bufs, nests, insts: 0, is_chain };
    let shapes = match is_chain {
        true => [vec![0, 0], vec![0, 0], vec![0], vec![0]],
        false => [vec![0, 1], vec![1, 2], vec![0], vec![1]],
    };
    for (at, dims) in shapes.iter().enumerate() {
        writer.array(format!("x{at}"), dims.clone(), " = input");
    }
    let steps = if is_chain { 3 } else { 1 } + writer.choices.below(5);
    for step in 0..steps {
        writer.nest(step);
    }
    let temps: Vec<&Array> = writer.arrays[shapes.len()..].iter().collect();
    let (last, earlier) = temps.split_last().expect("at least one step");
    let mut outputs = vec![last.name.clone()];
    outputs.extend(earlier.iter().filter(|_| writer.choices.once_in(4)).map(|array| array.name.clone()));
    let (bufs, nests) = (&writer.bufs, &writer.nests);
    let text = format!("loops @case on cpu {{\n{header}{bufs}{nests}  return {}\n}}\n", outputs.join(", "));
    let inputs = shapes.iter().map(|dims| dims.iter().map(|&dim| values[dim]).collect()).collect();
    Case { text, inputs, symbols }
}

impl Writer<'_, '_> {
    fn array(&mut self, name: String, dims: Vec<usize>, kind: &str) {
        let sizes: Vec<&str> = dims.iter().map(|&dim| &*self.sizes[dim]).collect();
        writeln!(self.bufs, "  buf {name}: f32[{}]{kind}", sizes.join(", ")).expect("strings take all");
        self.arrays.push(Array { name, dims });
    }

    fn inst(&mut self, inst: &str) -> usize {
        writeln!(self.nests, "    %{}: f32 = {inst}", self.insts).expect("strings take all");
        self.insts += 1;
        self.insts - 1
    }

    fn store(&mut self, array: &str, index: &str, value: usize) {
        writeln!(self.nests, "    store {array}[{index}] = %{value}").expect("strings take all");
        self.insts += 1;
    }

    /// `axes` are name and size, reduced ones after `outer` of them.
    fn begin(&mut self, step: usize, axes: &[(&str, usize)], outer: usize) {
        let list = |axes: &[(&str, usize)]| {
            let axes: Vec<String> =
                axes.iter().map(|&(axis, dim)| format!("{axis} in {}", self.sizes[dim])).collect();
            axes.join(", ")
        };
        let (points, reduced) = (list(&axes[..outer]), list(&axes[outer..]));
        let bar = if reduced.is_empty() { "" } else { " | " };
        writeln!(self.nests, "  nest n{step} [{points}{bar}{reduced}] {{").expect("strings take all");
        self.insts = 0;
    }

    /// Loads the element at `coordinates`, or one nearby: of a neighbour, of the other end.
    fn load(&mut self, array: &Array, coordinates: &[&str]) -> usize {
        let mut coordinates: Vec<String> = coordinates.iter().map(|&c| c.to_owned()).collect();
        let mut condition = String::new();
        if !coordinates.is_empty() {
            let d = self.choices.below(coordinates.len());
            let size = self.sizes[array.dims[d]].clone();
            match self.choices.below(12) {
                9 => {
                    condition = format!(" if {} < {size} - 1 else 0.0", coordinates[d]);
                    coordinates[d] = format!("{} + 1", coordinates[d]);
                }
                10 => {
                    condition = format!(" if 1 <= {} else 2.0", coordinates[d]);
                    coordinates[d] = format!("{} - 1", coordinates[d]);
                }
                11 => coordinates[d] = format!("{size} - 1 - {}", coordinates[d]),
                _ => {}
            }
        }
        self.inst(&format!("load {}[{}]{condition}", array.name, coordinates.join(", ")))
    }

    /// Keeps a value in -8..8.
    fn clamp(&mut self, value: usize) -> usize {
        let low = self.inst("const -8.0");
        let value = self.inst(&format!("max %{value}, %{low}"));
        let high = self.inst("const 8.0");
        self.inst(&format!("min %{value}, %{high}"))
    }

    fn matrices(&self) -> Vec<Array> {
        self.arrays.iter().filter(|array| array.dims.len() == 2).cloned().collect()
    }

    /// One of them, the latest being the simplest choice.
    fn latest(&mut self, arrays: &[Array]) -> Array {
        arrays[arrays.len() - 1 - self.choices.below(arrays.len())].clone()
    }

    fn nest(&mut self, step: usize) {
        let name = format!("t{step}");
        let matrices = self.matrices();
        let is_link = self.is_chain && !self.choices.once_in(3);
        let a = if is_link { matrices[matrices.len() - 1].clone() } else { self.latest(&matrices) };
        let (rows, columns) = (a.dims[0], a.dims[1]);
        match if is_link { self.choices.pick(&[0, 1, 8, 5]) } else { self.choices.below(9) } {
            0 | 1 => {
                self.begin(step, &[("i", rows), ("j", columns)], 2);
                let value = self.load(&a, &["i", "j"]);
                let value = self.operand(value, &a, step);
                let value = self.clamp(value);
                let is_turned = self.choices.once_in(4);
                let (dims, order) =
                    if is_turned { ([columns, rows], ["j", "i"]) } else { ([rows, columns], ["i", "j"]) };
                self.finish(name, &dims, &order, value);
            }
            2 => self.reduction(name, step, &a, [("i", rows), ("r", columns)], ["i", "r"]),
            3 => self.reduction(name, step, &a, [("j", columns), ("r", rows)], ["r", "j"]),
            4 => {
                self.begin(step, &[("q", rows), ("r", columns)], 0);
                let value = self.load(&a, &["q", "r"]);
                let op = self.choices.pick(&REDUCE);
                let value = self.inst(&format!("reduce.{op} %{value}"));
                let value = self.clamp(value);
                self.finish(name, &[], &[], value);
            }
            5 | 6 => self.product(name, step, &a, &matrices),
            7 => {
                self.begin(step, &[("i", rows), ("r", columns)], 1);
                let value = self.load(&a, &["i", "r"]);
                let op = self.choices.pick(&["argmax", "argmin"]);
                writeln!(self.nests, "    %{}: i64 = reduce.{op} %{value}", self.insts)
                    .expect("strings take all");
                self.insts += 1;
                let value = self.inst(&format!("cast %{}", self.insts - 1));
                let value = self.clamp(value);
                self.finish(name, &[rows], &["i"], value);
            }
            _ => {
                self.begin(step, &[("i", rows), ("j", columns)], 2);
                let value = self.load(&a, &["i", "j"]);
                let (op, axis) = (self.choices.pick(&REDUCE), self.choices.pick(&["j", "i"]));
                let value = self.inst(&format!("scan.{op} %{value} over {axis}"));
                let value = self.clamp(value);
                self.finish(name, &[rows, columns], &["i", "j"], value);
            }
        }
    }

    /// Combines `value`, of a nest over `i` and `j` of `a`, with an element of another array that fits.
    fn operand(&mut self, value: usize, a: &Array, step: usize) -> usize {
        let [rows, columns] = a.dims[..] else { unreachable!("a matrix has two dimensions") };
        let fits = |array: &&Array| {
            array.dims.is_empty()
                || array.dims == [rows]
                || array.dims == [columns]
                || array.dims == a.dims
                || array.dims == [columns, rows]
        };
        let mut others: Vec<Array> = self.arrays.iter().filter(fits).cloned().collect();
        // Where both sides have one size, any reading is right; the row's is taken.
        let first = step % others.len();
        others.rotate_left(first);
        let other = self.latest(&others);
        let coordinates: &[&str] = match other.dims[..] {
            [] => &[],
            [dim] if dim == rows => &["i"],
            [_] => &["j"],
            _ if other.dims == a.dims => &["i", "j"],
            _ => &["j", "i"],
        };
        let other = self.load(&other, coordinates);
        let op = self.choices.pick(&COMBINE);
        self.inst(&format!("{op} %{value}, %{other}"))
    }

    fn reduction(
        &mut self,
        name: String,
        step: usize,
        a: &Array,
        axes: [(&str, usize); 2],
        order: [&str; 2],
    ) {
        self.begin(step, &axes, 1);
        let value = self.load(a, &order);
        let op = self.choices.pick(&REDUCE);
        let mut value = self.inst(&format!("reduce.{op} %{value}"));
        value = self.clamp(value);
        if self.choices.once_in(4) {
            // A second reduction of the same points.
            let again = self.load(a, &order);
            let again = self.inst(&format!("reduce.max %{again}"));
            value = self.inst(&format!("sub %{value}, %{again}"));
            value = self.clamp(value);
        }
        self.finish(name, &[axes[0].1], &[axes[0].0], value);
    }

    fn product(&mut self, name: String, step: usize, a: &Array, matrices: &[Array]) {
        let (rows, shared) = (a.dims[0], a.dims[1]);
        let fits: Vec<Array> = matrices.iter().filter(|b| b.dims.contains(&shared)).cloned().collect();
        let b = self.latest(&fits);
        let (columns, order) =
            if b.dims[0] == shared { (b.dims[1], ["k", "j"]) } else { (b.dims[0], ["j", "k"]) };
        self.begin(step, &[("i", rows), ("j", columns), ("k", shared)], 2);
        let (left, right) = (self.load(a, &["i", "k"]), self.load(&b, &order));
        let value = self.inst(&format!("mul %{left}, %{right}"));
        let value = self.inst(&format!("reduce.sum %{value}"));
        let value = self.clamp(value);
        self.finish(name, &[rows, columns], &["i", "j"], value);
    }

    /// Stores the value in an array of its own and ends the nest.
    fn finish(&mut self, name: String, dims: &[usize], order: &[&str], value: usize) {
        self.array(name.clone(), dims.to_vec(), "");
        self.store(&name, &order.join(", "), value);
        self.nests.push_str("  }\n");
    }
}
