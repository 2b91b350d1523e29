//! Interns the nodes of expressions: their data, their order, and the interner.
//!
//! Nodes are leaked and live as long as the process, so an [`Expr`] is `Copy` and is read without a lock; only making
//! one takes a lock, on one of [`SHARDS`] hash tables. Hashes come from structure, never from addresses, so every run
//! of the same program orders and hashes alike.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, Mutex, PoisonError};

/// An interned symbol name such as `s0`, `i` or `%3`. One pointer; equality and hash take constant time.
///
/// Ordered naturally: `s2 < s10`. Any string is accepted, but only identifiers `[A-Za-z_%][A-Za-z0-9_.]*` can be
/// read back from text.
#[derive(Clone, Copy)]
pub struct Sym(&'static Name);

/// An interned integer expression in canonical form. One pointer; equality and hash take constant time.
///
/// Canonical form is a polynomial: a sum of terms, each an `i64` coefficient times a product of atoms, plus a constant.
/// Atoms are symbols, `floordiv`, `mod`, `min` and `max`. [`Ord`] is structural: integers first, then monomials by
/// their factors (a longer monomial before its own prefix), then sums.
#[derive(Clone, Copy)]
pub struct Expr(&'static Node);

/// The outermost operator of an expression and its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A constant.
    Int(i64),
    /// A symbol.
    Sym(Sym),
    /// Two or more summands in increasing order of their monomials, none of them a sum; the constant, if not zero,
    /// is the last one.
    Add(&'static [Expr]),
    /// A product: the coefficient, if not one, is the first operand, an [`Kind::Int`]; then one or more atoms in
    /// increasing order, repeated for powers. Two or more operands.
    Mul(&'static [Expr]),
    /// Quotient rounded to minus infinity, as in Python. The divisor's leading coefficient is positive.
    FloorDiv(Expr, Expr),
    /// Remainder with the sign of the divisor, as in Python. The divisor's leading coefficient is positive.
    Mod(Expr, Expr),
    /// Smaller of two. More than two operands nest to the right; operands increase, the constant is last.
    Min(Expr, Expr),
    /// Larger of two; operands as in [`Kind::Min`].
    Max(Expr, Expr),
}

struct Name {
    text: Box<str>,
    hash: u64,
}

struct Node {
    kind: Kind,
    hash: u64,
    /// Number of nodes of the expression written as a tree, saturating.
    size: u32,
    /// One bit per symbol, chosen by its hash: a clear intersection proves that no symbol is shared.
    mask: u64,
    /// No `floordiv`, `mod`, `min` or `max` anywhere inside.
    polynomial: bool,
    /// For a product with a coefficient: the coefficient and the product without it.
    scaled: Option<(i64, Expr)>,
}

impl Sym {
    /// Interns `name`.
    pub fn new(name: &str) -> Sym {
        let hash = finish(name.bytes().fold(name.len() as u64, |hash, byte| mix(hash, u64::from(byte))));
        let make = || Name { text: name.into(), hash };
        Sym(INTERNER.names[shard_of(hash)].intern(hash, |found| *found.text == *name, make))
    }

    /// The name.
    pub fn name(self) -> &'static str {
        &self.0.text
    }

    /// Whether `name` can stand for a symbol in text: `[A-Za-z_%][A-Za-z0-9_.]*`.
    pub fn is_identifier(name: &str) -> bool {
        name.as_bytes().first().is_some_and(|&byte| is_name_start(byte))
            && name.bytes().skip(1).all(is_name_rest)
    }

    pub(crate) fn mask(self) -> u64 {
        1 << (self.0.hash >> 32 & 63)
    }
}

/// First byte of a name.
pub(crate) fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'%'
}

/// Any later byte of a name.
pub(crate) fn is_name_rest(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

impl Expr {
    /// The constant `value`.
    pub fn int(value: i64) -> Expr {
        let small = usize::try_from(value.saturating_add(SMALL)).ok();
        small
            .and_then(|at| INTERNER.small.get(at).copied())
            .unwrap_or_else(|| intern_int(&INTERNER.nodes, value))
    }

    /// The symbol `sym`.
    pub fn sym(sym: Sym) -> Expr {
        intern_fixed(Kind::Sym(sym))
    }

    /// The symbol called `name`.
    pub fn named(name: &str) -> Expr {
        Expr::sym(Sym::new(name))
    }

    /// The constant 0.
    pub fn zero() -> Expr {
        Expr::int(0)
    }

    /// The constant 1.
    pub fn one() -> Expr {
        Expr::int(1)
    }

    /// The outermost operator and its operands.
    pub fn kind(self) -> Kind {
        self.0.kind
    }

    /// The value, if this is a constant.
    pub fn as_int(self) -> Option<i64> {
        match self.0.kind {
            Kind::Int(value) => Some(value),
            _ => None,
        }
    }

    /// The symbol, if this is one alone.
    pub fn as_sym(self) -> Option<Sym> {
        match self.0.kind {
            Kind::Sym(sym) => Some(sym),
            _ => None,
        }
    }

    /// Dividend and divisor, if this is a `floordiv` alone.
    pub fn as_floordiv(self) -> Option<(Expr, Expr)> {
        match self.0.kind {
            Kind::FloorDiv(dividend, divisor) => Some((dividend, divisor)),
            _ => None,
        }
    }

    /// Whether this is the constant 0.
    pub fn is_zero(self) -> bool {
        self.as_int() == Some(0)
    }

    /// Whether this is the constant 1.
    pub fn is_one(self) -> bool {
        self.as_int() == Some(1)
    }

    /// The terms that are not constant, as (coefficient, monomial) in canonical order; `self` is their sum plus
    /// [`Expr::constant`]. A monomial is an atom or a product of atoms.
    pub fn terms(self) -> Terms {
        match self.0.kind {
            Kind::Int(_) => Terms { alone: None, list: &[] },
            Kind::Add(list) => Terms { alone: None, list: split_constant(list).0 },
            _ => Terms { alone: Some(self), list: &[] },
        }
    }

    /// The constant term.
    pub fn constant(self) -> i64 {
        self.parts().1
    }

    /// All symbols inside, sorted and unique.
    pub fn syms(self) -> Vec<Sym> {
        let mut found = Vec::new();
        self.visit_syms(&mut |sym| found.push(sym));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether `sym` occurs anywhere inside.
    pub fn has_sym(self, sym: Sym) -> bool {
        if self.0.mask & sym.mask() == 0 {
            return false;
        }
        match self.0.kind {
            Kind::Int(_) => false,
            Kind::Sym(found) => found == sym,
            Kind::Add(list) | Kind::Mul(list) => list.iter().any(|item| item.has_sym(sym)),
            Kind::FloorDiv(a, b) | Kind::Mod(a, b) | Kind::Min(a, b) | Kind::Max(a, b) => {
                a.has_sym(sym) || b.has_sym(sym)
            }
        }
    }

    /// Calls `visit` for every occurrence of a symbol, in canonical order.
    pub fn visit_syms(self, visit: &mut dyn FnMut(Sym)) {
        match self.0.kind {
            Kind::Int(_) => {}
            Kind::Sym(sym) => visit(sym),
            Kind::Add(list) | Kind::Mul(list) => list.iter().for_each(|item| item.visit_syms(visit)),
            Kind::FloorDiv(a, b) | Kind::Mod(a, b) | Kind::Min(a, b) | Kind::Max(a, b) => {
                a.visit_syms(visit);
                b.visit_syms(visit);
            }
        }
    }

    /// Number of nodes of the expression written as a tree, saturating: the cost that simplification lowers.
    pub fn size(self) -> u32 {
        self.0.size
    }

    /// Whether no `floordiv`, `mod`, `min` or `max` is inside.
    pub fn is_polynomial(self) -> bool {
        self.0.polynomial
    }

    pub(crate) fn mask(self) -> u64 {
        self.0.mask
    }

    /// The summands that are not constant, and the constant.
    pub(crate) fn parts(&self) -> (&[Expr], i64) {
        match self.0.kind {
            Kind::Int(value) => (&[], value),
            Kind::Add(list) => split_constant(list),
            _ => (std::slice::from_ref(self), 0),
        }
    }

    /// A summand as coefficient and monomial. A constant is itself times 1.
    pub(crate) fn split_coefficient(self) -> (i64, Expr) {
        match self.0.kind {
            Kind::Int(value) => (value, Expr::one()),
            _ => self.0.scaled.unwrap_or((1, self)),
        }
    }

    /// The atoms of a monomial (a summand without coefficient); none for a constant.
    pub(crate) fn factors(&self) -> &[Expr] {
        match self.0.kind {
            Kind::Int(_) => &[],
            Kind::Mul(list) => list,
            _ => std::slice::from_ref(self),
        }
    }
}

fn split_constant(list: &'static [Expr]) -> (&'static [Expr], i64) {
    match list.split_last() {
        Some((Expr(Node { kind: Kind::Int(value), .. }), rest)) => (rest, *value),
        _ => (list, 0),
    }
}

/// Iterates over the terms of an expression; see [`Expr::terms`].
#[derive(Clone)]
pub struct Terms {
    alone: Option<Expr>,
    list: &'static [Expr],
}

impl Iterator for Terms {
    type Item = (i64, Expr);

    fn next(&mut self) -> Option<(i64, Expr)> {
        if let Some(term) = self.alone.take() {
            return Some(term.split_coefficient());
        }
        let (first, rest) = self.list.split_first()?;
        self.list = rest;
        Some(first.split_coefficient())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len() + usize::from(self.alone.is_some());
        (left, Some(left))
    }
}

impl ExactSizeIterator for Terms {}

// Interning. Each constructor hashes, looks up by shallow comparison (children are interned), and leaks on a miss.

/// Number of hash tables for each kind of interned thing; a power of two. Lookups hold a lock for about 20 ns, so
/// this many keep dozens of threads apart.
const SHARDS: usize = 64;
/// Constants from `-SMALL` to `SMALL` are found without a lock.
const SMALL: i64 = 64;

struct Interner {
    names: Vec<Shard<Name>>,
    nodes: Vec<Shard<Node>>,
    small: Vec<Expr>,
}

static INTERNER: LazyLock<Interner> = LazyLock::new(|| {
    let nodes: Vec<Shard<Node>> = (0..SHARDS).map(|_| Shard::default()).collect();
    let small = (-SMALL..=SMALL).map(|value| intern_int(&nodes, value)).collect();
    Interner { names: (0..SHARDS).map(|_| Shard::default()).collect(), nodes, small }
});

/// What the process has interned: it stays until the process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interned {
    /// Distinct expressions, with all inside of others.
    pub nodes: usize,
    /// Distinct names.
    pub names: usize,
    /// Bytes of both, and of the tables that find them.
    pub bytes: usize,
}

/// Counts what is interned at the moment.
pub fn interned() -> Interned {
    let (nodes, bytes) = count(&INTERNER.nodes);
    let (names, bytes_of_names) = count(&INTERNER.names);
    Interned { nodes, names, bytes: bytes + bytes_of_names }
}

/// How many things tables hold, and bytes of all.
fn count<T: Leaked>(shards: &[Shard<T>]) -> (usize, usize) {
    shards.iter().fold((0, 0), |(count, bytes), shard| {
        let table = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = table.slots.len() * size_of::<Slot<T>>();
        (count + table.len, bytes + slots + table.len * size_of::<T>() + table.beside)
    })
}

/// What is interned.
trait Leaked {
    /// Bytes that it has elsewhere.
    fn bytes_beside(&self) -> usize;
}

impl Leaked for Name {
    fn bytes_beside(&self) -> usize {
        self.text.len()
    }
}

impl Leaked for Node {
    fn bytes_beside(&self) -> usize {
        match self.kind {
            Kind::Add(list) | Kind::Mul(list) => size_of_val(list),
            Kind::Int(_)
            | Kind::Sym(_)
            | Kind::FloorDiv(..)
            | Kind::Mod(..)
            | Kind::Min(..)
            | Kind::Max(..) => 0,
        }
    }
}

struct Shard<T: 'static>(Mutex<Table<T>>);

impl<T: 'static> Default for Shard<T> {
    fn default() -> Self {
        Shard(Mutex::new(Table { slots: empty_slots(16), len: 0, beside: 0 }))
    }
}

/// Open addressing with linear probing; a power of two slots, at most half full.
struct Table<T: 'static> {
    slots: Vec<Slot<T>>,
    len: usize,
    /// Bytes that the interned things have elsewhere.
    beside: usize,
}

/// The hash stands beside the pointer, so that a probe reads what is interned only where it is most likely what is looked for: it
/// is seldom in the cache.
type Slot<T> = (u64, Option<&'static T>);

fn empty_slots<T>(count: usize) -> Vec<Slot<T>> {
    (0..count).map(|_| (0, None)).collect()
}

impl<T: Leaked> Shard<T> {
    /// The interned value with this hash for which `same` holds, else what `make` returns, leaked. `make` must not
    /// intern, because the shard is locked.
    fn intern(&self, hash: u64, same: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &'static T {
        // A panic while locked can only come from allocation; the table is whole between statements.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = table.slots.len() - 1;
        let mut at = hash as usize & last;
        while let (known, Some(found)) = table.slots[at] {
            if known == hash && same(found) {
                return found;
            }
            at = (at + 1) & last;
        }
        let made: &'static T = Box::leak(Box::new(make()));
        table.slots[at] = (hash, Some(made));
        table.len += 1;
        table.beside += made.bytes_beside();
        if table.len * 2 > table.slots.len() {
            table.grow();
        }
        made
    }
}

impl<T> Table<T> {
    fn grow(&mut self) {
        let capacity = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, empty_slots(capacity));
        for (hash, found) in old.into_iter().filter(|slot| slot.1.is_some()) {
            let mut at = hash as usize & (capacity - 1);
            while self.slots[at].1.is_some() {
                at = (at + 1) & (capacity - 1);
            }
            self.slots[at] = (hash, found);
        }
    }
}

/// The high bits choose the shard, the low bits the slot.
fn shard_of(hash: u64) -> usize {
    (hash >> 58) as usize % SHARDS
}

fn mix(hash: u64, word: u64) -> u64 {
    // The multiplier of FxHash: odd, with well spread bits.
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

fn finish(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

impl Kind {
    /// Position in the order of atoms, and seed of the hash.
    fn rank(&self) -> u64 {
        match self {
            Kind::Int(_) => 0,
            Kind::Sym(_) => 1,
            Kind::FloorDiv(..) => 2,
            Kind::Mod(..) => 3,
            Kind::Min(..) => 4,
            Kind::Max(..) => 5,
            Kind::Mul(_) => 6,
            Kind::Add(_) => 7,
        }
    }
}

fn hash_of(rank: u64, words: impl Iterator<Item = u64>) -> u64 {
    finish(words.fold(rank.wrapping_add(1), mix))
}

fn make_node(kind: Kind, hash: u64, scaled: Option<(i64, Expr)>) -> Node {
    let (size, mask, polynomial) = match kind {
        Kind::Int(_) => (1, 0, true),
        Kind::Sym(sym) => (1, sym.mask(), true),
        Kind::Add(list) | Kind::Mul(list) => (
            list.iter().fold(1u32, |size, item| size.saturating_add(item.size())),
            list.iter().fold(0, |mask, item| mask | item.mask()),
            list.iter().all(|item| item.is_polynomial()),
        ),
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) | Kind::Min(a, b) | Kind::Max(a, b) => {
            (a.size().saturating_add(b.size()).saturating_add(1), a.mask() | b.mask(), false)
        }
    };
    Node { kind, hash, size, mask, polynomial, scaled }
}

fn intern_int(nodes: &[Shard<Node>], value: i64) -> Expr {
    let hash = hash_of(Kind::Int(value).rank(), [value as u64].into_iter());
    let same = |found: &Node| found.kind == Kind::Int(value);
    Expr(nodes[shard_of(hash)].intern(hash, same, || make_node(Kind::Int(value), hash, None)))
}

/// Interns a node whose operands are not a list, exactly as given. The caller has applied all rules.
pub(crate) fn intern_fixed(kind: Kind) -> Expr {
    let hash = match kind {
        Kind::Int(value) => return Expr::int(value),
        Kind::Sym(sym) => hash_of(kind.rank(), [sym.0.hash].into_iter()),
        Kind::Add(list) => return intern_sum(list),
        Kind::Mul(list) => return intern_product(list, None),
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) | Kind::Min(a, b) | Kind::Max(a, b) => {
            hash_of(kind.rank(), [a.0.hash, b.0.hash].into_iter())
        }
    };
    let make = || make_node(kind, hash, None);
    Expr(INTERNER.nodes[shard_of(hash)].intern(hash, |found| found.kind == kind, make))
}

/// Interns a sum whose summands are in canonical order.
pub(crate) fn intern_sum(list: &[Expr]) -> Expr {
    let hash = hash_of(Kind::Add(&[]).rank(), list.iter().map(|item| item.0.hash));
    let same = |found: &Node| matches!(found.kind, Kind::Add(items) if items == list);
    let make = || make_node(Kind::Add(Vec::leak(list.to_vec())), hash, None);
    Expr(INTERNER.nodes[shard_of(hash)].intern(hash, same, make))
}

/// Interns a product whose factors are in canonical order; `scaled` splits it when it has a coefficient.
pub(crate) fn intern_product(list: &[Expr], scaled: Option<(i64, Expr)>) -> Expr {
    let hash = hash_of(Kind::Mul(&[]).rank(), list.iter().map(|item| item.0.hash));
    let same = |found: &Node| matches!(found.kind, Kind::Mul(items) if items == list);
    let make = || make_node(Kind::Mul(Vec::leak(list.to_vec())), hash, scaled);
    Expr(INTERNER.nodes[shard_of(hash)].intern(hash, same, make))
}

// Equality, hash and order.

impl PartialEq for Sym {
    fn eq(&self, other: &Sym) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Sym {}

impl Hash for Sym {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl PartialOrd for Sym {
    fn partial_cmp(&self, other: &Sym) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sym {
    fn cmp(&self, other: &Sym) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        natural_order(self.name().as_bytes(), other.name().as_bytes())
            .then_with(|| self.name().cmp(other.name()))
    }
}

/// Compares runs of digits as numbers and the rest bytewise; equal for `s02` and `s2`.
fn natural_order(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let (Some(&x), Some(&y)) = (a.first(), b.first()) else { return a.len().cmp(&b.len()) };
        if !(x.is_ascii_digit() && y.is_ascii_digit()) {
            match x.cmp(&y) {
                Ordering::Equal => (a, b) = (&a[1..], &b[1..]),
                unequal => return unequal,
            }
            continue;
        }
        let (x, y);
        (x, a) = split_number(a);
        (y, b) = split_number(b);
        match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
}

/// The leading digits without leading zeros, and what follows them.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let zeros = text[..end].iter().take_while(|&&byte| byte == b'0').count();
    (&text[zeros..end], &text[end..])
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Expr {}

impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl PartialOrd for Expr {
    fn partial_cmp(&self, other: &Expr) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Expr {
    fn cmp(&self, other: &Expr) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        match (self.0.kind, other.0.kind) {
            (Kind::Sym(a), Kind::Sym(b)) => a.cmp(&b),
            (Kind::Int(a), Kind::Int(b)) => a.cmp(&b),
            (Kind::Int(_), _) => Ordering::Less,
            (_, Kind::Int(_)) => Ordering::Greater,
            (Kind::Add(a), Kind::Add(b)) => a.cmp(b),
            (Kind::Add(_), _) => Ordering::Greater,
            (_, Kind::Add(_)) => Ordering::Less,
            _ => {
                let ((a, x), (b, y)) = (self.split_coefficient(), other.split_coefficient());
                monomial_order(x, y).then(a.cmp(&b))
            }
        }
    }
}

/// Lexicographic by factors, a longer monomial before its own prefix: `i*j < i < j`.
fn monomial_order(a: Expr, b: Expr) -> Ordering {
    let (x, y) = (a.factors(), b.factors());
    let different = x.iter().zip(y).find(|(x, y)| x != y);
    different.map_or(y.len().cmp(&x.len()), |(x, y)| atom_order(*x, *y))
}

fn atom_order(a: Expr, b: Expr) -> Ordering {
    match (a.0.kind, b.0.kind) {
        (Kind::Sym(x), Kind::Sym(y)) => x.cmp(&y),
        (Kind::FloorDiv(w, x), Kind::FloorDiv(y, z))
        | (Kind::Mod(w, x), Kind::Mod(y, z))
        | (Kind::Min(w, x), Kind::Min(y, z))
        | (Kind::Max(w, x), Kind::Max(y, z)) => w.cmp(&y).then_with(|| x.cmp(&z)),
        (x, y) => x.rank().cmp(&y.rank()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_order_naturally() {
        let sorted = ["%2", "%10", "i", "s", "s2", "s02", "s2a", "s10", "s10.1", "t1"];
        for (at, a) in sorted.iter().enumerate() {
            for (to, b) in sorted.iter().enumerate() {
                let (x, y) = (Sym::new(a), Sym::new(b));
                let expected = if ["s2", "s02"].contains(a) && ["s2", "s02"].contains(b) {
                    a.cmp(b) // equal as numbers: bytes decide
                } else {
                    at.cmp(&to)
                };
                assert_eq!(x.cmp(&y), expected, "{a} {b}");
            }
        }
    }

    #[test]
    fn equal_expressions_are_one_node_across_threads() {
        let build = || (0..500).map(|k| Expr::named(&format!("t{k}")) * k + k).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(build)).collect();
        let lists: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        assert!(lists.iter().all(|list| *list == lists[0]));
    }

    #[test]
    fn masks_and_syms_see_inside_atoms() {
        let (x, y) = (Sym::new("x"), Sym::new("y"));
        let e = (Expr::sym(y) * 3).floordiv(Expr::sym(x)) + Expr::sym(y);
        assert_eq!(e.syms(), [x, y]);
        assert!(e.has_sym(x) && e.has_sym(y) && !e.has_sym(Sym::new("z")));
        assert!(!e.is_polynomial() && (Expr::sym(x) * Expr::sym(y)).is_polynomial());
    }

    #[test]
    fn terms_leave_the_constant_out() {
        let (i, j) = (Expr::named("i"), Expr::named("j"));
        let e = j * 2 - i * j + 7;
        assert_eq!(e.terms().collect::<Vec<_>>(), [(-1, i * j), (2, j)]);
        assert_eq!(e.constant(), 7);
        assert_eq!((Expr::int(5).terms().len(), Expr::int(5).constant()), (0, 5));
    }
}
