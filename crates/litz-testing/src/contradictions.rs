//! Holds calls that contradict themselves, written by hand: one for each way in which an operator could read or write
//! outside of its operands, and calls beside them that are right.

use litz_ir::Dtype;
use litz_ir::graph::{Arg, Float, TensorType, Value};
use litz_runtime::Tensor;
use litz_sym::Expr;

use crate::cases::{Case, Recorded};

/// Calls that are refused, tensors as their types and `none` where nothing is given, and what the message names besides the
/// operator: what does not go together.
pub const REFUSED: &[(&str, [&str; 2])] = &[
    ("aten.select_scatter.default(f32[4,3], f32[100], 0, 1)", ["[100]", "[3]"]),
    ("aten.select_scatter.default(f32[4,3], f32[3], 0, 1000)", ["1000", "4"]),
    ("aten.slice_scatter.default(f32[8], f32[3], 0, 1, 3, 1)", ["[3]", "[2]"]),
    ("aten.slice_scatter.default(f32[8], f32[2], 0, 0, 8, 1)", ["[2]", "[8]"]),
    ("aten.diagonal_scatter.default(f32[4,4], f32[2], 0, 0, 1)", ["[2]", "[4]"]),
    ("aten.as_strided.default(f32[4], [100], [1], 0)", ["[100]", "4 elements"]),
    ("aten.as_strided.default(f32[4], [2], [1], 3)", ["[2]", "4 elements"]),
    ("aten.as_strided.default(f32[4], [2], [-1], 1)", ["[2]", "[-1]"]),
    ("aten.as_strided_scatter.default(f32[4], f32[100], [100], [1], 0)", ["[100]", "4 elements"]),
    ("aten.gather.default(f32[4,3], 1, i64[100,3])", ["[100, 3]", "[4, 3]"]),
    ("aten.scatter.src(f32[4,3], 1, i64[100,3], f32[100,3])", ["[100, 3]", "[4, 3]"]),
    ("aten.scatter.src(f32[4,3], 1, i64[4,3], f32[2,3])", ["[4, 3]", "[2, 3]"]),
    ("aten.scatter_add.default(f32[4,3], 1, i64[100,3], f32[100,3])", ["[100, 3]", "[4, 3]"]),
    ("aten.scatter_reduce.two(f32[4,3], 1, i64[100,3], f32[100,3], \"sum\")", ["[100, 3]", "[4, 3]"]),
    ("aten.index_add.default(f32[4,3], 0, i64[2], f32[2,100])", ["[2, 100]", "[2, 3]"]),
    ("aten.index_copy.default(f32[4,3], 0, i64[2], f32[2,100])", ["[2, 100]", "[2, 3]"]),
    ("aten.index_reduce.default(f32[4,3], 0, i64[2], f32[2,100], \"prod\")", ["[2, 100]", "[2, 3]"]),
    ("aten.index_add.default(f32[4,3], 0, i64[2], f32[100,3])", ["[100, 3]", "[2, 3]"]),
    ("aten.index_put.default(f32[4,3], [i64[2]], f32[7,3])", ["[7, 3]", "[2, 3]"]),
    ("aten.index_put.default(f32[4], [bool[100]], f32[1])", ["[100]", "[4]"]),
    ("aten.index_put.default(f32[400], [bool[4]], f32[1])", ["[4]", "[400]"]),
    ("aten.layer_norm.default(f32[4,300], [300], f32[3], f32[3])", ["[3]", "[300]"]),
    ("aten.rms_norm.default(f32[4,300], [300], f32[3])", ["[3]", "[300]"]),
    ("aten.group_norm.default(f32[4,300], 3, f32[3], f32[3])", ["[3]", "[300]"]),
    (
        "aten.batch_norm.default(f32[4,300], f32[3], f32[3], f32[3], f32[3], false, 0.1, 1e-05, false)",
        ["[3]", "[300]"],
    ),
    (
        "aten.instance_norm.default(f32[4,300,2], f32[3], f32[3], none, none, true, 0.1, 1e-05, false)",
        ["[3]", "[300]"],
    ),
    ("aten.linear.default(f32[4,3], f32[50,3], f32[4])", ["[4]", "[4, 50]"]),
    ("aten.addmm.default(f32[7], f32[4,3], f32[3,50])", ["[7]", "[4, 50]"]),
    (
        "aten.scaled_dot_product_attention.default(f32[1,2,8,4], f32[1,2,9,4], f32[1,2,9,4], f32[3,3])",
        ["[3, 3]", "[1, 2, 8, 9]"],
    ),
    ("aten.copy.default(f32[8], f32[3])", ["[3]", "[8]"]),
    ("aten.fill.Tensor(f32[8], f32[3])", ["[3]", "[]"]),
    ("aten.narrow.default(f32[8], 0, 4, 7)", ["7", "8"]),
    ("aten.unfold.default(f32[8], 0, 100, 1)", ["100", "8"]),
    (
        "aten.fake_quantize_per_channel_affine.default(f32[8,300], f32[3], i32[3], 1, 0, 255)",
        ["[3]", "[300]"],
    ),
    ("aten.put.default(f32[4], i64[9], f32[3])", ["[3]", "[9]"]),
    ("aten.searchsorted.Tensor(f32[4,8], f32[9,2])", ["[4]", "[9]"]),
    ("aten.embedding_bag.default(f32[10,4], i64[6], i64[2], false, 0, false, f32[2])", ["[2]", "[6]"]),
    (
        "aten.lstm.input(f32[2,1,4], [f32[1,1,4] f32[1,1,4]], [f32[16,4] f32[16,4] f32[3] f32[3]], true, 1, 0.0, false, false, false)",
        ["[3]", "[2, 1, 16]"],
    ),
    ("aten.max_unpool2d.default(f32[1,1,4,4], i64[1,1,2,2], [8 8])", ["[1, 1, 2, 2]", "[1, 1, 4, 4]"]),
    ("aten.cross_entropy_loss.default(f32[6,40], i64[6], f32[3])", ["[3]", "[40]"]),
    // Writes that would have to grow, or to change the type of, what they write to.
    ("aten.add_.Tensor(f32[1], f32[4])", ["[1]", "[4]"]),
    ("aten.add_.Tensor(i64[4], f32[4])", ["f32", "i64"]),
    // What the operator that was written is made of.
    ("aten.tensordot.default(f32[2,3], f32[4,5], [1], [0])", ["3", "4"]),
    ("aten.pixel_shuffle.default(f32[1,6,2,2], 2)", ["[1, 1, 2, 2, 2, 2]", "[1, 6, 2, 2]"]),
];

/// Calls that are right, for all that they look like.
pub const ACCEPTED: &[&str] = &[
    "aten.scatter_add.default(f32[4,3], 1, i64[2,3], f32[4,3])",
    "aten.gather.default(f32[4,3], 1, i64[2,2])",
    "aten.gather.default(f32[4], 0, i64[])",
    "aten.gather.default(f32[], 0, i64[3])",
    "aten.scatter.src(f32[4], 0, i64[], f32[2])",
    "aten.index_put.default(f32[4,3], [i64[2]], f32[3])",
    "aten.index_put.default(f32[4,3], [i64[2]], f32[1,1])",
    "aten.as_strided.default(f32[4], [2 2], [1 1], 1)",
    "aten.as_strided.default(f32[4], [0 9], [1 1], 0)",
    "aten.linear.default(f32[4,3], f32[50,3], f32[4,50])",
    "aten.add_.Tensor(f32[4], f32[1])",
    "aten.add_.Tensor(f32[4], i64[4])",
    "aten.tensordot.default(f32[2,1], f32[4,5], [1], [0])",
    "aten.cross_entropy_loss.default(f32[40], i64[])",
    "aten.bucketize.Tensor(i64[4], f32[3])",
    "aten.index_put.default(f32[4], [bool[4]], f64[])",
    "aten.index_put.default(f32[4], [bool[4]], f32[1,1])",
];

/// Reads the arguments of a call; tensors are those of the case, full of zeros, which are positions too.
struct Reader<'t> {
    rest: &'t str,
    tensors: Vec<Recorded>,
}

impl Reader<'_> {
    fn skip(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start_matches([' ', ',']);
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Values up to the closing bracket.
    fn list(&mut self, close: &str) -> Option<Vec<Arg>> {
        let mut items = Vec::new();
        while !self.skip(close) {
            items.push(self.value()?);
        }
        Some(items)
    }

    fn value(&mut self) -> Option<Arg> {
        if self.skip("[") {
            return self.list("]").map(Arg::List);
        }
        let end = self.rest.find([',', ' ', '[', ']', ')'])?;
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(match word {
            "none" => Arg::None,
            "true" => Arg::Bool(true),
            "false" => Arg::Bool(false),
            _ if word.starts_with('"') => Arg::Str(word.trim_matches('"').to_owned()),
            _ => match (Dtype::from_name(word), word.parse::<i64>()) {
                (Some(dtype), _) => self.tensor(dtype)?,
                (None, Ok(i)) => Arg::Int(Expr::int(i)),
                (None, Err(_)) => Arg::Float(Float(word.parse().ok()?)),
            },
        })
    }

    fn tensor(&mut self, dtype: Dtype) -> Option<Arg> {
        let sizes = if self.skip("[") { self.list("]")? } else { return None };
        let sizes: Vec<Expr> = sizes.iter().filter_map(Arg::as_int).collect();
        let ty = TensorType::contiguous(dtype, sizes);
        let numbers = |list: &[Expr]| {
            list.iter().map(|e| usize::try_from(e.as_int()?).ok()).collect::<Option<Vec<_>>>()
        };
        let tensor = Tensor::zeros(dtype, &numbers(&ty.sizes)?, &numbers(&ty.strides)?).ok()?;
        self.tensors.push(Recorded { ty, tensor });
        Some(Arg::Value(Value(self.tensors.len() as u32 - 1)))
    }
}

/// The call that a text of [`REFUSED`] or [`ACCEPTED`] spells.
///
/// # Errors
/// Where the text is no such call.
pub fn parse(text: &str) -> Result<Case, String> {
    let malformed = || format!("`{text}` is no call");
    let (op, rest) = text.split_once('(').ok_or_else(malformed)?;
    let mut reader = Reader { rest, tensors: Vec::new() };
    let args = reader.list(")").ok_or_else(malformed)?;
    Ok(Case { line: 0, op: op.to_owned(), tensors: reader.tensors, args, results: Vec::new() })
}
