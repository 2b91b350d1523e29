//! Names threads and acts of a kernel in errors.

use std::collections::HashMap;

use litz_ir::kernel::{Kernel, Stmt, visit};

use super::Interpreter;
use super::clocks::Access;
use super::code::Node;
use super::threads::ThreadRange;

impl Interpreter {
    /// What threads did: `thread 3 at `s[t] = %0``.
    pub(super) fn access(&self, access: &Access) -> String {
        format!("{} at {}", threads(access.range), self.act(access.act))
    }

    /// Where threads are.
    pub(super) fn waiting(&self, range: ThreadRange, act: Option<usize>) -> String {
        match act {
            Some(act) => format!("{} at {}", threads(range), self.act(act)),
            None => format!("{} elsewhere", threads(range)),
        }
    }

    /// The text of an act, by the address of its node.
    fn act(&self, address: usize) -> String {
        let mut lines = HashMap::new();
        if let Some(kernel) = &self.source {
            name(&self.code.body, &kernel.body, &mut statements(kernel).into_iter(), &mut lines);
        }
        lines.remove(&address).map_or("an act".to_owned(), |line| format!("`{line}`"))
    }
}

fn threads(range: ThreadRange) -> String {
    match range.single() {
        Some(thread) => format!("thread {thread}"),
        None if range == ThreadRange::ALL => "all threads".to_owned(),
        None => format!("threads {} to {}", range.first, range.end - 1),
    }
}

/// The first line of each statement, outer ones first.
fn statements(kernel: &Kernel) -> Vec<String> {
    let mut count = 0;
    visit(&kernel.body, &mut |_| count += 1);
    let text = kernel.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with('}')).collect();
    // Statements come last.
    lines[lines.len().saturating_sub(count)..].iter().map(|&line| line.to_owned()).collect()
}

/// Gives nodes the lines of the statements that they are for.
fn name(
    nodes: &[Node],
    stmts: &[Stmt],
    lines: &mut impl Iterator<Item = String>,
    named: &mut HashMap<usize, String>,
) {
    for (node, stmt) in nodes.iter().zip(stmts) {
        let line = lines.next().unwrap_or_default();
        named.insert(std::ptr::from_ref(node).addr(), line.clone());
        match (node, stmt) {
            (
                Node::Loop { body, .. } | Node::Level { body, .. } | Node::Instruction { body, .. },
                Stmt::Loop(inner),
            ) => name(body, &inner.body, lines, named),
            (Node::If { then, other, .. }, Stmt::If { then: own, other: others, .. }) => {
                name(then, own, lines, named);
                name(other, others, lines, named);
            }
            // An act that stands for loops.
            (Node::Loop { body, .. }, _) => name_all(body, &line, named),
            _ => {}
        }
    }
}

fn name_all(nodes: &[Node], line: &str, named: &mut HashMap<usize, String>) {
    for node in nodes {
        named.insert(std::ptr::from_ref(node).addr(), line.to_owned());
        if let Node::Loop { body, .. } = node {
            name_all(body, line, named);
        }
    }
}
