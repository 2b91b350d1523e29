//! Runs lines of graphs on tensors that share real memory, and writes their text.

use crate::lines::Line;

/// The last input.
const POSITIONS: &str = "  %at: i64[2] = input\n";
/// What the host has.
const OPERATORS: &str = "  op mylib.twice.default(Tensor x) -> Tensor any
  op mylib.increment.default(Tensor(a!) x) -> () any
";

/// A tensor: elements of a memory that others may share.
#[derive(Clone, Debug)]
pub struct View {
    pub memory: usize,
    offset: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    /// Where each element is, in row-major order of coordinates.
    pub fn places(&self) -> Vec<usize> {
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

/// What lines compute with real memory, and their text.
pub struct Machine {
    pub memories: Vec<Vec<f32>>,
    pub views: Vec<View>,
    pub written: Vec<bool>,
    positions: [i64; 2],
    /// Of symbols and graphs, which have names of their own everywhere.
    prefix: String,
    /// Symbols, operators and graphs, which stand before inputs.
    head: String,
    inputs: String,
    text: String,
}

/// How often a graph is repeated for the first position 0.
const REPEATED: i64 = 3;

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
    pub fn new(inputs: &[(Vec<usize>, Vec<f32>)], positions: [i64; 2]) -> Machine {
        let mut machine = Machine {
            memories: Vec::new(),
            views: Vec::new(),
            written: vec![false; inputs.len()],
            positions,
            prefix: String::new(),
            head: OPERATORS.to_owned(),
            inputs: String::new(),
            text: String::new(),
        };
        for (sizes, elements) in inputs {
            machine.inputs += &format!("  %v{}: f32[{}] = input\n", machine.views.len(), numbers(sizes));
            machine.fresh(sizes.clone(), elements.clone());
        }
        machine.inputs += POSITIONS;
        machine
    }

    /// The whole text, with what it returns.
    pub fn graph_of(&self, returned: &str) -> String {
        format!("graph @g on cpu {{\n{}{}{}  return {returned}\n}}\n", self.head, self.inputs, self.text)
    }

    /// A tensor as an operand of a graph: where its elements are in a memory of its own, and the elements.
    fn operand(&self, at: usize) -> Option<(View, Vec<f32>)> {
        let view = self.views.get(at)?;
        Some((view.clone(), self.read(view)))
    }

    /// A graph of those lines that fit, of two tensors, which gives the last tensor that is as large as the first one. None
    /// where lines write to what comes from outside.
    fn inside(&self, operands: &[(View, Vec<f32>); 2], lines: &[Line], name: &str) -> Option<Machine> {
        let mut machine = Machine {
            memories: Vec::new(),
            views: Vec::new(),
            written: vec![false; operands.len()],
            positions: self.positions,
            prefix: format!("{}{}{name}", self.prefix, self.views.len()),
            head: String::new(),
            inputs: String::new(),
            text: String::new(),
        };
        for (memory, (view, elements)) in operands.iter().enumerate() {
            let ty = format!("f32[{}]{{{}}}", numbers(&view.sizes), numbers(&view.strides));
            machine.inputs += &format!("  %v{memory}: {ty} = input\n");
            let view = View { memory, offset: 0, ..view.clone() };
            let places = view.places();
            let mut own = vec![0.0; places.iter().max().map_or(0, |&last| last + 1)];
            places.into_iter().zip(elements).for_each(|(at, &element)| own[at] = element);
            machine.memories.push(own);
            machine.views.push(view);
        }
        machine.inputs += POSITIONS;
        for line in lines {
            // Others do not fit what there is.
            let _ = machine.run(line);
        }
        let result = machine.views.iter().rposition(|view| view.sizes == operands[0].0.sizes)?;
        machine.text +=
            &format!("  %r: f32[{}] = aten.clone.default(%v{result})\n", numbers(&operands[0].0.sizes));
        let elements = machine.read(&machine.views[result]);
        machine.fresh(operands[0].0.sizes.clone(), elements);
        machine.written.iter().all(|is_written| !is_written).then_some(machine)
    }

    /// What a graph inside of another gives.
    fn result(&self) -> Vec<f32> {
        self.views.last().map_or(Vec::new(), |view| self.read(view))
    }

    /// The text of a graph inside of another, with an input and a line ahead of the others and one more result.
    fn graph(&self, name: &str, [input, line, result]: [&str; 3]) -> String {
        let Machine { head, inputs, text, .. } = self;
        format!("  graph @{name} on cpu {{\n{head}{input}{inputs}{line}{text}  return {result}%r\n  }}\n")
    }

    /// Two elements along a dimension from the first position on, and the symbol of that position.
    fn cut_late(&mut self, view: &View, dim: usize) -> Option<(View, String)> {
        let start = usize::try_from(self.positions[0]).ok()?;
        if *view.sizes.get(dim)? < start.max(2) + 2 {
            return None;
        }
        let (number, start_at) = (self.views.len(), format!("start{}_{}", self.prefix, self.views.len()));
        self.head += &format!("  sym {start_at} in [0, 2]\n");
        self.text += &format!("  %s{number}: i64[] = aten.select.int(%at, 0, 0)\n");
        self.text += &format!("  %i{number}: int({start_at}) = aten.item.default(%s{number})\n");
        Some((view.cut(dim, start, 2, 1), start_at))
    }

    pub fn read(&self, view: &View) -> Vec<f32> {
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
    pub fn run(&mut self, line: &Line) -> Option<()> {
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
            Line::SliceAt { of, dim } => {
                let (cut, start) = self.cut_late(&view(of)?, dim)?;
                let op = format!("aten.slice.Tensor(%v{of}, {dim}, {start}, {start} + 2, 1)");
                (text, part) = (op, Some(cut));
            }
            Line::SliceScatterAt { of, from, dim } => {
                let (whole, new) = (view(of)?, view(from)?);
                fits(dim, &whole)?;
                if whole.cut(dim, 0, 2, 1).sizes != new.sizes {
                    return None;
                }
                let (cut, start) = self.cut_late(&whole, dim)?;
                let elements = self.replaced(&whole, &cut, &self.read(&new));
                let op = "aten.slice_scatter.default";
                (text, part) = (format!("{op}(%v{of}, %v{from}, {dim}, {start}, {start} + 2, 1)"), None);
                self.fresh(whole.sizes, elements);
            }
            Line::SumChosen(of) => {
                let elements = self.read(&view(of)?);
                let (number, size) = (self.views.len(), format!("count{}_{}", self.prefix, self.views.len()));
                self.head += &format!("  sym {size} in [0, {}]\n", elements.len());
                let ty = format!("bool[{}]", numbers(&view(of)?.sizes));
                self.text += &format!("  %m{number}: {ty} = aten.gt.Scalar(%v{of}, 0)\n");
                self.text +=
                    &format!("  %c{number}: f32[{size}] = aten.masked_select.default(%v{of}, %m{number})\n");
                self.text += &format!("  %d{number}: f32[{size}] = aten.add.Tensor(%c{number}, 1, 1)\n");
                (text, part) = (format!("aten.sum.default(%d{number}, none)"), None);
                let sum = elements.iter().filter(|&&x| x > 0.0).map(|x| x + 1.0).sum();
                self.fresh(Vec::new(), vec![sum]);
            }
            Line::Branch { of, from, ref arms } => {
                let operands = [self.operand(of)?, self.operand(from)?];
                let number = self.views.len();
                let [yes, no] = ["yes", "no"].map(|name| format!("{name}{}{number}", self.prefix));
                let is_chosen = operands[0].1.iter().sum::<f32>() > 0.0;
                let arms = [self.inside(&operands, &arms[0], "y")?, self.inside(&operands, &arms[1], "n")?];
                self.head += &arms[0].graph(&yes, ["", "", ""]);
                self.head += &arms[1].graph(&no, ["", "", ""]);
                self.text += &format!("  %s{number}: f32[] = aten.sum.default(%v{of}, none)\n");
                self.text += &format!("  %p{number}: bool[] = aten.gt.Scalar(%s{number}, 0)\n");
                let call = format!("(%p{number}, @{yes}, @{no}, [%v{of}, %v{from}, %at])");
                (text, part) = (format!("higher_order.cond.default{call}"), None);
                let result = arms[usize::from(!is_chosen)].result();
                self.fresh(view(of)?.sizes, result);
            }
            Line::Repeat { of, from, ref body } => {
                let (sizes, other) = (view(of)?.sizes, self.operand(from)?);
                let number = self.views.len();
                let [more, again] = ["more", "body"].map(|name| format!("{name}{}{number}", self.prefix));
                let view = View { memory: 0, offset: 0, strides: contiguous(&sizes), sizes: sizes.clone() };
                let mut operands = [(view, self.operand(of)?.1), other];
                let mut last = None;
                for _ in self.positions[0]..REPEATED {
                    let inside = self.inside(&operands, body, "b")?;
                    operands[0].1 = inside.result();
                    last = Some(inside);
                }
                let inside = last?;
                let counted = "  %n: i64[] = input\n";
                let is_more = format!(
                    "{counted}{}  %p: bool[] = aten.lt.Scalar(%n, {REPEATED})\n  return %p\n}}\n",
                    inside.inputs
                );
                self.head += &format!("  graph @{more} on cpu {{\n{is_more}");
                let next = "  %m: i64[] = aten.add.Tensor(%n, 1, 1)\n";
                self.head += &inside.graph(&again, [counted, next, "%m, "]);
                let ty = format!("f32[{}]", numbers(&sizes));
                self.text += &format!("  %n{number}: i64[] = aten.select.int(%at, 0, 0)\n");
                self.text += &format!("  %a{number}: {ty} = aten.clone.default(%v{of})\n");
                self.text += &format!(
                    "  %k{number}: i64[], %v{number}: {ty} = higher_order.while_loop.default(@{more}, @{again}, \
                     [%n{number}, %a{number}], [%v{from}, %at])\n",
                );
                let [(_, elements), _] = operands;
                self.fresh(sizes, elements);
                return Some(());
            }
            Line::Twice(of) => {
                let whole = view(of)?;
                let new = self.read(&whole).iter().map(|x| 2.0 * x).collect();
                (text, part) = (format!("mylib.twice.default(%v{of})"), None);
                self.fresh(whole.sizes, new);
            }
            Line::Increment(of) => {
                let whole = view(of)?;
                let new: Vec<f32> = self.read(&whole).iter().map(|x| x + 1.0).collect();
                self.write(&whole, &new);
                self.text += &format!("  mylib.increment.default(%v{of})\n");
                (text, part) = (format!("aten.alias.default(%v{of})"), Some(whole));
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
