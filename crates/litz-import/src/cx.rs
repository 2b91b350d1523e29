//! Holds what all graphs of one program share: symbols, expressions, source lines, and the list of what is not supported.

use crate::body::Names;
use crate::error::{ImportError, UnknownOp};
use crate::schema::{self, Argument, ExportedProgram, SymExprHint, SymInt, SymIntArgument, TensorMeta};
use crate::source::{module_path, source_line, source_lines};
use crate::srepr;
use litz_ir::graph::{Device, Origin, TensorType};
use litz_ir::loops::may_be_in_memory;
use litz_ir::schema::Schemas;
use litz_sym::{Clause, Expr, Facts, Range, Rel, Sym, solve_linear};
use std::collections::HashMap;
use std::sync::Arc;

/// What the whole import shares.
pub(crate) struct Cx<'a> {
    pub schemas: &'a dyn Schemas,
    ranges: HashMap<Sym, Range>,
    hints: HashMap<Sym, i64>,
    /// Expressions by text: a program repeats few of them thousands of times.
    exprs: HashMap<&'a str, Expr>,
    /// Integers that only a node gives, as PyTorch writes them, and their symbols.
    late: Vec<(&'a str, Expr)>,
    late_names: Names,
    /// Source lines by stack trace.
    /// By stack trace.
    sources: HashMap<&'a str, (Option<Arc<str>>, Vec<Arc<str>>)>,
    /// By what archives say of modules.
    modules: HashMap<&'a str, Option<Arc<str>>>,
    unknown_ops: Vec<UnknownOp>,
    unknown_positions: HashMap<String, usize>,
    pub unknown_guards: Vec<ImportError>,
    /// Where the first tensor lives.
    pub device: Device,
}

/// Most guards of a graph; those of real programs number in the hundreds, and each takes time linear in the others.
const MAX_GUARDS: usize = 4096;
/// Most integers that only nodes give; each expression behind them is compared with all.
const MAX_LATE: usize = 256;
/// Number of source lines kept for each unknown operator.
const MAX_SOURCES: usize = 3;

impl<'a> Cx<'a> {
    pub fn new(schemas: &'a dyn Schemas, program: &'a ExportedProgram<'a>) -> Result<Cx<'a>, ImportError> {
        let file = &program.graph_module.graph;
        let mut cx = Cx {
            schemas,
            ranges: HashMap::new(),
            hints: HashMap::new(),
            exprs: HashMap::new(),
            late: Vec::new(),
            late_names: Names::default(),
            sources: HashMap::new(),
            modules: HashMap::new(),
            unknown_ops: Vec::new(),
            unknown_positions: HashMap::new(),
            unknown_guards: Vec::new(),
            device: main_device(file)?,
        };
        for (of, range) in program.range_constraints.iter().filter(|(of, _)| Sym::is_identifier(of)) {
            let range = Range::new(range.min_val.unwrap_or(i64::MIN), range.max_val.unwrap_or(i64::MAX));
            if range.is_empty() {
                return Err(ImportError::program(format!("the range {range} of `{of}` is empty")));
            }
            cx.ranges.insert(srepr::symbol(of), range);
        }
        cx.collect_hints(file)?;
        Ok(cx)
    }

    /// Example sizes, from those the program was traced with.
    fn collect_hints(&mut self, file: &'a schema::Graph<'a>) -> Result<(), ImportError> {
        let names = file.inputs.iter().filter_map(|input| match input {
            Argument::Tensor(tensor) => Some(&*tensor.name),
            Argument::SymInt(SymIntArgument::Name(name)) => Some(&**name),
            _ => None,
        });
        for name in names {
            let sizes = file.tensor_values.get(name).into_iter().flat_map(|meta| &meta.sizes);
            for size in sizes.chain(file.sym_int_values.get(name)) {
                let SymInt::Expr(expr) = size else { continue };
                let Some(SymExprHint::Int(hint)) = expr.hint else { continue };
                let value = self.parse(&expr.expr_str)?;
                if let [sym] = value.syms().as_slice()
                    && let Some(hint) = solve_linear(value, *sym, hint)
                {
                    self.hints.insert(*sym, hint);
                }
            }
        }
        Ok(())
    }

    fn parse(&mut self, text: &'a str) -> Result<Expr, ImportError> {
        if let Some(&expr) = self.exprs.get(text) {
            return Ok(expr);
        }
        let expr = srepr::parse_expr(text, &self.late)?;
        self.exprs.insert(text, expr);
        Ok(expr)
    }

    /// A condition of the file: clauses that hold together.
    pub fn condition(&self, text: &str) -> Result<Vec<Clause>, ImportError> {
        srepr::parse_condition(text, &self.late)
    }

    /// An integer that a node called `name` gives. Where its expression has no exact integer meaning, a new symbol stands for it,
    /// there and in all expressions behind.
    pub fn late_int(
        &mut self,
        facts: &mut Facts,
        name: &str,
        value: &'a SymInt<'a>,
    ) -> Result<Expr, ImportError> {
        match (self.int(facts, value), value) {
            (Err(error @ ImportError::UnsupportedExpression { .. }), SymInt::Expr(expr)) => {
                if self.late.len() >= MAX_LATE || !Sym::is_identifier(name) {
                    return Err(error);
                }
                // Symbols of PyTorch's have no such names.
                let name = self.late_names.fresh(&format!("{name}_value"));
                self.late.push((&expr.expr_str, Expr::named(&name)));
                self.int(facts, value)
            }
            (int, _) => int,
        }
    }

    /// An integer of the file; declares its symbols.
    pub fn int(&mut self, facts: &mut Facts, value: &'a SymInt<'a>) -> Result<Expr, ImportError> {
        let text = match value {
            SymInt::Int(value) => return Ok(Expr::int(*value)),
            SymInt::Expr(expr) => &expr.expr_str,
        };
        let expr = self.parse(text)?;
        expr.visit_syms(&mut |sym| self.declare(facts, sym));
        Ok(if expr.is_polynomial() { expr } else { facts.simplify(expr) })
    }

    pub fn declare(&self, facts: &mut Facts, sym: Sym) {
        if !facts.is_symbol_declared(sym) {
            facts.declare(
                sym,
                self.ranges.get(&sym).copied().unwrap_or(Range::ALL),
                self.hints.get(&sym).copied(),
            );
        }
    }

    fn size(&mut self, facts: &mut Facts, value: &'a SymInt<'a>) -> Result<Expr, ImportError> {
        let size = self.int(facts, value)?;
        if let Some(sym) = size.as_sym()
            && facts.range_of(sym).lo < 0
        {
            let range = facts.range_of(sym).intersect(Range::at_least(0));
            facts.declare(sym, range, facts.hint_of(sym));
        }
        Ok(size)
    }

    pub fn tensor_type(
        &mut self,
        facts: &mut Facts,
        name: &str,
        meta: &'a TensorMeta<'a>,
    ) -> Result<TensorType, ImportError> {
        let unsupported = |feature| ImportError::UnsupportedType { name: name.to_owned(), feature };
        meta.layout.expect_strided().map_err(unsupported)?;
        let device = meta.device.device().map_err(unsupported)?;
        let dtype = meta.dtype.dtype().map_err(unsupported)?;
        let sizes = meta.sizes.iter().map(|size| self.size(facts, size)).collect::<Result<Vec<_>, _>>()?;
        let strides =
            meta.strides.iter().map(|stride| self.int(facts, stride)).collect::<Result<Vec<_>, _>>()?;
        if sizes.len() != strides.len() {
            let why = format!("`{name}`: expected {} strides, found {}", sizes.len(), strides.len());
            return Err(ImportError::program(why));
        }
        if let Some(negative) =
            sizes.iter().chain(&strides).find(|e| e.as_int().is_some_and(|value| value < 0))
        {
            return Err(ImportError::program(format!(
                "`{name}`: expected positive sizes and strides, found {negative}"
            )));
        }
        if !may_be_in_memory(&sizes, &strides) {
            return Err(ImportError::program(format!(
                "`{name}`: no memory holds sizes {sizes:?} with strides {strides:?}"
            )));
        }
        Ok(TensorType { dtype, sizes, strides, device })
    }

    /// Makes guards of clauses.
    pub fn require(
        &self,
        facts: &mut Facts,
        clauses: impl IntoIterator<Item = Clause>,
        who: &str,
    ) -> Result<(), ImportError> {
        for clause in clauses {
            if facts.guards().len() >= MAX_GUARDS {
                return Err(ImportError::program(format!(
                    "expected at most {MAX_GUARDS} guards, found more"
                )));
            }
            for rel in clause.alternatives() {
                rel.lhs.visit_syms(&mut |sym| self.declare(facts, sym));
                rel.rhs.visit_syms(&mut |sym| self.declare(facts, sym));
            }
            let simplify =
                |rel: &Rel| Rel { lhs: facts.simplify(rel.lhs), rhs: facts.simplify(rel.rhs), ..*rel };
            let clause = Clause::new(clause.alternatives().iter().map(simplify));
            facts.require(clause, who).map_err(|contradiction| ImportError::Guard {
                text: crate::error::shorten(who),
                why: format!("{} can never hold", contradiction.clause),
            })?;
        }
        Ok(())
    }

    /// Line, stack and module of a node.
    pub fn origin(&mut self, node: &'a schema::Node<'a>) -> Origin {
        let line = self.source(node);
        let stack = node.metadata.stack_trace.as_ref().map(|trace| self.lines(trace).1.clone());
        let modules = node.metadata.nn_module_stack.as_ref();
        let module = modules.and_then(|text| {
            self.modules.entry(text).or_insert_with(|| module_path(text).map(Arc::from)).clone()
        });
        Origin { line, module, name: None, stack: stack.unwrap_or_default() }
    }

    /// The user's line of a stack trace, and all lines.
    fn lines(&mut self, trace: &'a str) -> &(Option<Arc<str>>, Vec<Arc<str>>) {
        self.sources.entry(trace).or_insert_with(|| {
            let lines = source_lines(trace).into_iter().map(Arc::from).collect();
            (source_line(trace).map(Arc::from), lines)
        })
    }

    /// The user's source line; that of the first node inside where a node with subgraphs has none.
    pub fn source(&mut self, node: &'a schema::Node<'a>) -> Option<Arc<str>> {
        let Some(trace) = &node.metadata.stack_trace else {
            let graphs = node.inputs.iter().filter_map(|input| match &input.arg {
                Argument::Graph(graph) => Some(&graph.graph),
                _ => None,
            });
            return graphs.flat_map(|graph| graph.nodes.first()).find_map(|inner| self.source(inner));
        };
        self.lines(trace).0.clone()
    }

    pub fn report_unknown(&mut self, name: &str, node: &'a schema::Node<'a>) {
        let source = self.source(node);
        let at = *self.unknown_positions.entry(name.to_owned()).or_insert_with(|| {
            self.unknown_ops.push(UnknownOp { name: name.to_owned(), count: 0, sources: Vec::new() });
            self.unknown_ops.len() - 1
        });
        let op = &mut self.unknown_ops[at];
        op.count += 1;
        if let Some(source) = source.filter(|_| op.sources.len() < MAX_SOURCES) {
            op.sources.push(source.to_string());
        }
    }

    pub fn refuse_unknown_ops(&mut self) -> Result<(), ImportError> {
        if self.unknown_ops.is_empty() {
            return Ok(());
        }
        Err(ImportError::UnknownOps { ops: std::mem::take(&mut self.unknown_ops) })
    }
}

/// The device of the first tensor of a program; the host if there is none.
fn main_device(file: &schema::Graph) -> Result<Device, ImportError> {
    let arguments = file.inputs.iter().chain(file.nodes.iter().flat_map(|node| &node.outputs));
    let mut tensors = arguments.filter_map(|argument| match argument {
        Argument::Tensor(tensor) => file.tensor_values.get_key_value(&*tensor.name),
        _ => None,
    });
    let Some((name, meta)) = tensors.next() else { return Ok(Device::Cpu) };
    let unsupported = |feature| ImportError::UnsupportedType { name: name.to_string(), feature };
    meta.device.device().map_err(unsupported)
}
