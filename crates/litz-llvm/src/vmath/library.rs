//! Defines the functions of the C library and of the runtime that kernels call, in LLVM IR, for targets that have neither.
//!
//! The code is scalar and may branch. Functions of single precision compute in double precision; those of double precision keep
//! intermediate results as sums of two numbers where one would not do. `library.rs` of litz-cpu's tests has their errors.

mod angles;
mod code;
mod errors;
mod gamma;
mod powers;
mod steps;
mod sums;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use super::emitter::Scalar;
use code::{Code, Function, Number, Table};

/// Every function, by the name that it is called by.
static FUNCTIONS: &[&Function] = &[
    &steps::FMODF,
    &steps::FMOD,
    &steps::NEXTAFTERF,
    &steps::NEXTAFTER,
    &single("sinf", |code, x| narrow(code, &angles::SIN, x)),
    &single("cosf", |code, x| narrow(code, &angles::COS, x)),
    &single("tanf", |code, x| narrow(code, &angles::TAN, x)),
    &angles::SIN,
    &angles::COS,
    &angles::TAN,
    &angles::ASIN,
    &angles::ACOS,
    &angles::ATAN,
    &angles::ATAN2,
    &powers::POW,
    &powers::SINH,
    &powers::COSH,
    &powers::ASINH,
    &powers::ACOSH,
    &powers::ATANH,
    &errors::ERF,
    &errors::ERFC,
    &single("lz_erfinv_f32", |code, x| narrow(code, &errors::ERFINV, x)),
    &errors::ERFINV,
    &single("lgammaf", |code, x| narrow(code, &gamma::LGAMMA, x)),
    &gamma::LGAMMA,
    &single("lz_digamma_f32", |code, x| narrow(code, &gamma::DIGAMMA, x)),
    &gamma::DIGAMMA,
];

/// The texts that define a function: its own, those of functions that it calls and of tables that they load. Each is to stand once in a
/// module. `None` for a function that is not among these.
pub fn definition(name: &str) -> Option<BTreeSet<String>> {
    let function = FUNCTIONS.iter().find(|function| function.name == name)?;
    let (mut texts, mut waiting) = (BTreeMap::new(), vec![*function]);
    let mut constants: BTreeSet<String> = BTreeSet::new();
    while let Some(function) = waiting.pop() {
        if !texts.contains_key(function.name) {
            let (text, calls, tables) = function.write();
            texts.insert(function.name, text);
            waiting.extend(calls);
            constants.extend(tables.iter().map(|&table| Table::write(table)));
        }
    }
    constants.extend(texts.into_values());
    Some(constants)
}

/// The names that [`definition`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|function| function.name)
}

/// A function of a number of single precision.
const fn single(
    name: &'static str,
    body: for<'c> fn(&'c Code, &[Number<'c>]) -> Vec<Number<'c>>,
) -> Function {
    Function { name, parameters: &[Scalar::F32], results: &[Scalar::F32], body }
}

/// What a function of double precision gives, rounded.
fn narrow<'c>(code: &'c Code, function: &'static Function, x: &[Number<'c>]) -> Vec<Number<'c>> {
    let [result] = code.call(function, &[x[0].to_f64()]);
    vec![result.to_f32()]
}
