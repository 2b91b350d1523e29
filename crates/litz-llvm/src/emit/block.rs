//! Puts instructions into basic blocks: numbers values, hoists, and keeps the stack of scopes.
//!
//! LLVM runs no passes over the text, so it has to be good as written. A *scope* is a stretch of code that dominates
//! the scopes nested in it: the function, a loop body, the arm of a branch. Every value knows the depth of the scope
//! it lives in. A pure instruction goes to the deepest scope that one of its operands lives in, at the end of that
//! scope's open block, and is found there when the same text is asked for again. Loop-invariant code motion and
//! common subexpression elimination both follow from that. A block's terminator is kept apart from its instructions,
//! so that a block stays open while the blocks it dominates are written.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::rc::Rc;

use litz_ir::Scalar;
use litz_ir::kernel::Mem;

use super::ty::{Prim, Ty, literal};

/// An operand: the name of a register or a literal, with its type and the depth of the scope it lives in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) text: Rc<str>,
    pub(super) ty: Ty,
    pub(super) depth: usize,
}

impl Value {
    pub(super) fn is_literal(&self) -> bool {
        !self.text.starts_with('%')
    }

    /// What every lane of a literal is.
    fn element(&self) -> &str {
        let inside = self.text.strip_prefix("splat (").and_then(|text| text.strip_suffix(')'));
        inside.and_then(|text| text.split(' ').nth(1)).unwrap_or(&self.text)
    }

    /// The integer that every lane of a literal is.
    pub(super) fn as_int(&self) -> Option<i64> {
        self.element().parse().ok()
    }
}

/// A variable of the emitter that becomes SSA values: a group of neighbouring elements of a register array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Slot {
    pub(super) mem: Mem,
    pub(super) group: i64,
}

/// A variable that a loop carries around.
struct Carried {
    slot: Slot,
    phi: Value,
    initial: Value,
}

pub(super) enum ScopeKind {
    /// Runs once where its parent runs, perhaps.
    Arm,
    /// Runs any number of times after its preheader.
    Loop { preheader: usize, header: usize },
}

struct Scope {
    kind: ScopeKind,
    /// The block that instructions go to.
    block: usize,
    numbers: HashMap<String, Value>,
    slots: BTreeMap<Slot, Value>,
    /// Memory that a loop writes, sorted.
    written: Vec<Mem>,
    carried: Vec<Carried>,
    /// Addresses that were fetched.
    fetched: HashSet<Rc<str>>,
}

struct Block {
    phis: String,
    body: Vec<Instruction>,
    end: String,
}

/// An instruction of a block, phis and terminators apart.
pub(super) struct Instruction {
    /// Its line.
    pub(super) text: String,
    /// Name of its result, if it has one.
    pub(super) result: Option<Rc<str>>,
    /// Names of its operands.
    pub(super) operands: Vec<Rc<str>>,
}

impl Instruction {
    pub(super) fn new(result: Option<&Rc<str>>, operands: &[&Value], text: &str) -> Instruction {
        let named = operands.iter().filter(|operand| !operand.is_literal());
        let text = match result {
            Some(result) => format!("  {result} = {text}\n"),
            None => format!("  {text}\n"),
        };
        Instruction {
            text,
            result: result.cloned(),
            operands: named.map(|operand| operand.text.clone()).collect(),
        }
    }
}

/// A function body under construction.
pub(super) struct Builder {
    blocks: Vec<Block>,
    scopes: Vec<Scope>,
    names: u32,
    /// Instructions without a result.
    effects: u32,
    /// Stack variables, at the start of the entry block.
    allocas: String,
    /// Declarations of everything called.
    pub(super) declarations: BTreeSet<String>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        let mut builder = Builder {
            blocks: Vec::new(),
            scopes: Vec::new(),
            names: 0,
            effects: 0,
            allocas: String::new(),
            declarations: BTreeSet::new(),
        };
        let entry = builder.new_block();
        builder.open(ScopeKind::Arm, entry, Vec::new());
        builder
    }

    /// The text of all blocks.
    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let allocas = if index == 0 { self.allocas.as_str() } else { "" };
            write!(text, "b{index}:\n{}{allocas}", block.phis)
                .expect("invariant: writing to a string succeeds");
            text.extend(block.body.iter().map(|instruction| &*instruction.text));
            text.push_str(&block.end);
        }
        text
    }

    // Literals.

    pub(super) fn constant(&self, prim: Prim, value: Scalar) -> Value {
        Value { text: literal(prim, value).into(), ty: Ty::scalar(prim), depth: 0 }
    }

    pub(super) fn int(&self, prim: Prim, value: i64) -> Value {
        self.constant(prim, Scalar::Int(value))
    }

    /// A literal in every lane of `ty`.
    pub(super) fn constant_of(&mut self, ty: Ty, value: Scalar) -> Value {
        let scalar = self.constant(ty.prim, value);
        self.splat(&scalar, ty.lanes)
    }

    pub(super) fn poison(&self, ty: Ty) -> Value {
        Value { text: "poison".into(), ty, depth: 0 }
    }

    /// `<0, step, 2*step, ...>`.
    pub(super) fn iota(&self, prim: Prim, lanes: u32, step: i64) -> Value {
        let ty = Ty { prim, lanes };
        let scalar = Ty::scalar(prim);
        let items: Vec<String> =
            (0..i64::from(lanes)).map(|lane| format!("{scalar} {}", lane.wrapping_mul(step))).collect();
        Value { text: format!("<{}>", items.join(", ")).into(), ty, depth: 0 }
    }

    // Instructions.

    fn fresh(&mut self) -> Rc<str> {
        self.names += 1;
        format!("%v{}", self.names).into()
    }

    /// An instruction without side effects, or the value it gave before.
    pub(super) fn pure(&mut self, ty: Ty, operands: &[&Value], text: String) -> Value {
        let depth = operands.iter().map(|value| value.depth).max().unwrap_or(0);
        if let Some(value) = self.scopes[depth].numbers.get(&text) {
            return value.clone();
        }
        let value = Value { text: self.fresh(), ty, depth };
        self.append(depth, Instruction::new(Some(&value.text), operands, &text));
        self.scopes[depth].numbers.insert(text, value.clone());
        value
    }

    /// An instruction that reads memory, in the scope at `depth`, or the value that it gave before. `version` changes
    /// whenever the memory may have changed.
    pub(super) fn read(
        &mut self,
        ty: Ty,
        depth: usize,
        version: u64,
        operands: &[&Value],
        text: String,
    ) -> Value {
        let key = format!("{text} #{version}");
        if let Some(value) = self.scopes[..=depth].iter().rev().find_map(|scope| scope.numbers.get(&key)) {
            return value.clone();
        }
        let value = Value { text: self.fresh(), ty, depth };
        self.append(depth, Instruction::new(Some(&value.text), operands, &text));
        self.scopes[depth].numbers.insert(key, value.clone());
        value
    }

    /// Notes that an address is fetched in the scope at `depth`; false where it was, as for a load that was there before.
    pub(super) fn fetch(&mut self, depth: usize, address: &Value) -> bool {
        let was_fetched = self.scopes[..=depth].iter().any(|scope| scope.fetched.contains(&address.text));
        !was_fetched && self.scopes[depth].fetched.insert(Rc::clone(&address.text))
    }

    /// Pure instructions written by `write`, which gets the source of names and appends their lines, and gives the
    /// name of the result. `key` tells what they compute.
    pub(super) fn inline(
        &mut self,
        ty: Ty,
        operand: &Value,
        key: String,
        write: &dyn Fn(&mut dyn FnMut() -> String, &mut Vec<String>) -> Option<String>,
    ) -> Option<Value> {
        let depth = operand.depth;
        if let Some(value) = self.scopes[depth].numbers.get(&key) {
            return Some(value.clone());
        }
        let names = &mut self.names;
        let mut fresh = || {
            *names += 1;
            format!("%v{names}")
        };
        let mut lines = Vec::new();
        let value = Value { text: write(&mut fresh, &mut lines)?.into(), ty, depth };
        // They stay in order: the first one waits for the operand, and once the last one is there so is the result.
        let last = lines.len().saturating_sub(1);
        for (at, text) in lines.into_iter().enumerate() {
            let result = (at == last).then(|| value.text.clone());
            let operands = if at == 0 { vec![operand.text.clone()] } else { Vec::new() };
            self.append(depth, Instruction { text, result, operands });
        }
        self.scopes[depth].numbers.insert(key, value.clone());
        Some(value)
    }

    /// The value, from here on a part of the current scope: what uses it stays behind the current point.
    pub(super) fn pin(&self, value: Value) -> Value {
        Value { depth: self.depth(), ..value }
    }

    /// An instruction with a result that stays where it is.
    pub(super) fn impure(&mut self, ty: Ty, operands: &[&Value], text: &str) -> Value {
        let value = Value { text: self.fresh(), ty, depth: self.depth() };
        self.append(self.depth(), Instruction::new(Some(&value.text), operands, text));
        value
    }

    /// An instruction without result.
    pub(super) fn effect(&mut self, operands: &[&Value], text: &str) {
        self.effect_at(self.depth(), operands, text);
    }

    /// As `effect`, in the scope at `depth`, before all that is nested in it.
    pub(super) fn effect_at(&mut self, depth: usize, operands: &[&Value], text: &str) {
        self.effects += 1;
        self.append(depth, Instruction::new(None, operands, text));
    }

    fn append(&mut self, depth: usize, instruction: Instruction) {
        let block = self.scopes[depth].block;
        self.blocks[block].body.push(instruction);
    }

    /// How many instructions there are.
    pub(super) fn size(&self) -> u32 {
        self.names + self.effects
    }

    /// Where the next instruction that stays in place goes: the block, and how many it holds.
    pub(super) fn position(&self) -> (usize, usize) {
        let block = self.block();
        (block, self.blocks[block].body.len())
    }

    /// Takes the instructions that the current block holds from there on.
    pub(super) fn take_from(&mut self, start: usize) -> Vec<Instruction> {
        let block = self.block();
        self.blocks[block].body.split_off(start)
    }

    /// Appends instructions that were taken, perhaps in another order.
    pub(super) fn put_back(&mut self, instructions: Vec<Instruction>) {
        let block = self.block();
        self.blocks[block].body.extend(instructions);
    }

    /// `op ty a, b`.
    pub(super) fn binary(&mut self, op: &str, a: &Value, b: &Value) -> Value {
        let text = format!("{op} {} {}, {}", a.ty, a.text, b.text);
        self.pure(a.ty, &[a, b], text)
    }

    /// `op ty a`, such as `fneg`.
    pub(super) fn unary(&mut self, op: &str, a: &Value) -> Value {
        let text = format!("{op} {} {}", a.ty, a.text);
        self.pure(a.ty, &[a], text)
    }

    /// `op ty a, b` with one truth value a lane, such as `icmp eq`.
    pub(super) fn compare(&mut self, op: &str, a: &Value, b: &Value) -> Value {
        let text = format!("{op} {} {}, {}", a.ty, a.text, b.text);
        self.pure(a.ty.with(Prim::I1), &[a, b], text)
    }

    /// `op ty a to prim`, such as `sext`; nothing where the type is that already.
    pub(super) fn convert(&mut self, op: &str, a: &Value, prim: Prim) -> Value {
        if a.ty.prim == prim {
            return a.clone();
        }
        let ty = a.ty.with(prim);
        // The smallest integers are the same in all types.
        if matches!(op, "trunc" | "sext" | "zext")
            && let Some(value) = a.as_int().filter(|value| (0..128).contains(value))
            && prim != Prim::I1
        {
            return self.constant_of(ty, Scalar::Int(value));
        }
        let text = format!("{op} {} {} to {ty}", a.ty, a.text);
        self.pure(ty, &[a], text)
    }

    /// The same bits as another type, perhaps of other lanes.
    pub(super) fn reinterpret(&mut self, a: &Value, ty: Ty) -> Value {
        let text = format!("bitcast {} {} to {ty}", a.ty, a.text);
        self.pure(ty, &[a], text)
    }

    /// `condition ? a : b`; the condition may be one for all lanes.
    pub(super) fn select(&mut self, condition: &Value, a: &Value, b: &Value) -> Value {
        if a == b || condition.element() == "true" {
            return a.clone();
        }
        if condition.element() == "false" {
            return b.clone();
        }
        let text =
            format!("select {} {}, {} {}, {} {}", condition.ty, condition.text, a.ty, a.text, b.ty, b.text);
        self.pure(a.ty, &[condition, a, b], text)
    }

    /// A pure call, such as one of an intrinsic.
    pub(super) fn call(&mut self, ty: Ty, name: &str, arguments: &[&Value]) -> Value {
        let text = self.call_text(ty, name, arguments);
        self.pure(ty, arguments, text)
    }

    /// A call of an intrinsic overloaded by its result type.
    pub(super) fn intrinsic(&mut self, name: &str, arguments: &[&Value]) -> Value {
        let ty = arguments[0].ty;
        self.call(ty, &format!("llvm.{name}.{}", ty.suffix()), arguments)
    }

    /// The text of a call. The callee gets declared, except for intrinsics, which LLVM knows.
    fn call_text(&mut self, ty: Ty, name: &str, arguments: &[&Value]) -> String {
        if !name.starts_with("llvm.") {
            let types: Vec<String> = arguments.iter().map(|value| value.ty.to_string()).collect();
            self.declarations.insert(format!("declare {ty} @{name}({}) nounwind", types.join(", ")));
        }
        let list: Vec<String> =
            arguments.iter().map(|value| format!("{} {}", value.ty, value.text)).collect();
        format!("call {ty} @{name}({})", list.join(", "))
    }

    /// The value in `lanes` lanes; vectors stay as they are.
    pub(super) fn splat(&mut self, a: &Value, lanes: u32) -> Value {
        if lanes == 1 || a.ty.lanes != 1 {
            return a.clone();
        }
        let ty = Ty { prim: a.ty.prim, lanes };
        if &*a.text == "poison" {
            return self.poison(ty);
        }
        if a.is_literal() && a.ty.prim != Prim::Ptr {
            return Value { text: format!("splat ({} {})", a.ty, a.text).into(), ty, depth: 0 };
        }
        let one = self.pure(ty, &[a], format!("insertelement {ty} poison, {} {}, i64 0", a.ty, a.text));
        let text = format!("shufflevector {ty} {}, {ty} poison, <{lanes} x i32> zeroinitializer", one.text);
        self.pure(ty, &[&one], text)
    }

    /// Lane `lane` of a vector.
    pub(super) fn extract(&mut self, a: &Value, lane: u32) -> Value {
        if a.ty.lanes == 1 {
            return a.clone();
        }
        let text = format!("extractelement {} {}, i64 {lane}", a.ty, a.text);
        self.pure(Ty::scalar(a.ty.prim), &[a], text)
    }

    /// A vector with one lane replaced.
    pub(super) fn insert(&mut self, a: &Value, lane: u32, item: &Value) -> Value {
        let text = format!("insertelement {} {}, {} {}, i64 {lane}", a.ty, a.text, item.ty, item.text);
        self.pure(a.ty, &[a, item], text)
    }

    /// `count` lanes of a vector from `start`.
    pub(super) fn slice(&mut self, a: &Value, start: u32, count: u32) -> Value {
        if count == 1 {
            return self.extract(a, start);
        }
        let lanes: Vec<String> = (start..start + count).map(|lane| format!("i32 {lane}")).collect();
        let ty = Ty { prim: a.ty.prim, lanes: count };
        let text = format!(
            "shufflevector {0} {1}, {0} poison, <{count} x i32> <{2}>",
            a.ty,
            a.text,
            lanes.join(", ")
        );
        self.pure(ty, &[a], text)
    }

    /// The given lanes of two vectors, those of the second counted after those of the first.
    pub(super) fn shuffle(&mut self, a: &Value, b: &Value, lanes: impl Iterator<Item = u32>) -> Value {
        let lanes: Vec<String> = lanes.map(|lane| format!("i32 {lane}")).collect();
        let ty = Ty { prim: a.ty.prim, lanes: lanes.len() as u32 };
        let text = format!(
            "shufflevector {} {}, {} {}, <{} x i32> <{}>",
            a.ty,
            a.text,
            b.ty,
            b.text,
            lanes.len(),
            lanes.join(", ")
        );
        self.pure(ty, &[a, b], text)
    }

    /// Whether both hold.
    pub(super) fn and(&mut self, a: &Value, b: &Value) -> Value {
        let lanes = a.ty.lanes.max(b.ty.lanes);
        let (a, b) = (self.splat(a, lanes), self.splat(b, lanes));
        self.binary("and", &a, &b)
    }

    /// Stack memory in the entry block.
    pub(super) fn alloca(&mut self, text: &str) -> Value {
        let value = Value { text: self.fresh(), ty: Ty::PTR, depth: 0 };
        writeln!(self.allocas, "  {} = alloca {text}", value.text)
            .expect("invariant: writing to a string succeeds");
        value
    }

    // Blocks and scopes.

    pub(super) fn depth(&self) -> usize {
        self.scopes.len() - 1
    }

    /// The block that instructions of the innermost scope go to.
    pub(super) fn block(&self) -> usize {
        self.scopes[self.depth()].block
    }

    pub(super) fn new_block(&mut self) -> usize {
        self.blocks.push(Block { phis: String::new(), body: Vec::new(), end: String::new() });
        self.blocks.len() - 1
    }

    /// Goes on in `block`, which the blocks of this scope so far dominate.
    pub(super) fn continue_in(&mut self, block: usize) {
        let depth = self.depth();
        self.scopes[depth].block = block;
    }

    /// Ends the current block.
    pub(super) fn end(&mut self, text: &str) {
        let block = self.block();
        let end = &mut self.blocks[block].end;
        debug_assert!(end.is_empty(), "invariant: a block ends once");
        writeln!(end, "  {text}").expect("invariant: writing to a string succeeds");
    }

    pub(super) fn jump(&mut self, target: usize) {
        self.end(&format!("br label %b{target}"));
    }

    pub(super) fn branch(&mut self, condition: &Value, then: usize, other: usize) {
        self.end(&format!("br i1 {}, label %b{then}, label %b{other}", condition.text));
    }

    /// A phi at the start of the current block.
    pub(super) fn phi(&mut self, ty: Ty, incoming: &[(&Value, usize)]) -> Value {
        let value = Value { text: self.fresh(), ty, depth: self.depth() };
        let block = self.block();
        self.write_phi(block, &value, incoming);
        value
    }

    /// A name for a phi of the current block, whose operands come later.
    pub(super) fn later_phi(&mut self, ty: Ty) -> Value {
        Value { text: self.fresh(), ty, depth: self.depth() }
    }

    pub(super) fn write_phi(&mut self, block: usize, value: &Value, incoming: &[(&Value, usize)]) {
        let list: Vec<String> =
            incoming.iter().map(|(value, from)| format!("[ {}, %b{from} ]", value.text)).collect();
        // Phis come before all else in a block.
        let line = format!("  {} = phi {} {}\n", value.text, value.ty, list.join(", "));
        self.blocks[block].phis.insert_str(0, &line);
    }

    /// Opens a scope whose first block is `block`.
    pub(super) fn open(&mut self, kind: ScopeKind, block: usize, written: Vec<Mem>) {
        let (numbers, slots, carried) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let fetched = HashSet::new();
        self.scopes.push(Scope { kind, block, numbers, slots, written, carried, fetched });
    }

    /// Closes an arm: the block it ended in, and the slots it changed.
    pub(super) fn close_arm(&mut self) -> (usize, BTreeMap<Slot, Value>) {
        let scope = self.scopes.pop().expect("invariant: the arm is open");
        debug_assert!(scope.carried.is_empty());
        (scope.block, scope.slots)
    }

    /// Closes a loop that ended with a branch to its header or to `exit`, and goes on in `exit`. What it changed
    /// keeps its last value.
    pub(super) fn close_loop(&mut self, exit: usize) {
        let scope = self.scopes.pop().expect("invariant: the loop is open");
        let ScopeKind::Loop { preheader, header } = scope.kind else {
            unreachable!("invariant: it is a loop")
        };
        for Carried { slot, phi, initial } in &scope.carried {
            let last = scope.slots.get(slot).filter(|last| last.text != phi.text);
            if let Some(last) = last {
                self.write_phi(header, phi, &[(initial, preheader), (last, scope.block)]);
                continue;
            }
            // Read, but never changed: another name for the initial value.
            let line = format!("  {} = bitcast {1} {2} to {1}\n", phi.text, phi.ty, initial.text);
            self.blocks[header].phis.push_str(&line);
        }
        self.continue_in(exit);
        for (slot, value) in scope.slots {
            self.set_slot(slot, value);
        }
    }

    /// Joins two arms in the current block: slots that either changed get a phi.
    pub(super) fn join(&mut self, arms: [(usize, BTreeMap<Slot, Value>); 2]) {
        let changed: BTreeMap<Slot, Ty> =
            arms.iter().flat_map(|(_, slots)| slots.iter().map(|(slot, value)| (*slot, value.ty))).collect();
        for (slot, ty) in changed {
            let [a, b] = [0, 1].map(|arm: usize| match arms[arm].1.get(&slot) {
                Some(value) => value.clone(),
                None => self.slot(slot, &self.poison(ty)),
            });
            let value = if a.text == b.text { a } else { self.phi(ty, &[(&a, arms[0].0), (&b, arms[1].0)]) };
            self.set_slot(slot, value);
        }
    }

    // Slots.

    /// The current value of a slot; `initial` is that of one never written.
    pub(super) fn slot(&mut self, slot: Slot, initial: &Value) -> Value {
        self.slot_at(self.depth(), slot, initial)
    }

    fn slot_at(&mut self, depth: usize, slot: Slot, initial: &Value) -> Value {
        let scope = &self.scopes[depth];
        if let Some(value) = scope.slots.get(&slot) {
            return value.clone();
        }
        if depth == 0 {
            self.scopes[depth].slots.insert(slot, initial.clone());
            return initial.clone();
        }
        let is_carried = matches!(scope.kind, ScopeKind::Loop { .. }) && scope.written.contains(&slot.mem);
        let outer = self.slot_at(depth - 1, slot, initial);
        if !is_carried {
            return outer;
        }
        let phi = Value { text: self.fresh(), ty: outer.ty, depth };
        self.scopes[depth].carried.push(Carried { slot, phi: phi.clone(), initial: outer });
        self.scopes[depth].slots.insert(slot, phi.clone());
        phi
    }

    pub(super) fn set_slot(&mut self, slot: Slot, mut value: Value) {
        let depth = self.depth();
        value.depth = value.depth.min(depth);
        self.scopes[depth].slots.insert(slot, value);
    }

    /// Forgets the slots of these memories that the current scope holds.
    pub(super) fn drop_slots(&mut self, mems: &[Mem]) {
        let depth = self.depth();
        self.scopes[depth].slots.retain(|slot, _| !mems.contains(&slot.mem));
    }

    /// The least depth at which a read of `mem` sees what it would see here, and is known to happen.
    pub(super) fn read_depth(&self, mem: Mem) -> usize {
        let binds = |scope: &Scope| match scope.kind {
            ScopeKind::Arm => true,
            ScopeKind::Loop { .. } => scope.written.contains(&mem),
        };
        self.scopes.iter().rposition(binds).unwrap_or(0)
    }
}
