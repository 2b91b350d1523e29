//! Generates text with a model that goes on by one token a call and keeps what it has seen in its own state.
//!
//! ```no_run
//! use litz::generate::{Generator, Sampling, Vocabulary};
//! use litz::{Model, Options};
//!
//! let model = Model::open("examples/text.pt2")?;
//! let compiled = model.compile(&Options::default())?;
//! let vocabulary = Vocabulary::of(&model)?.expect("the archive has one");
//! let mut generator = Generator::new(&model, &compiled, &Sampling::default())?;
//! let mut next = 0;
//! for token in vocabulary.encode("The statement").expect("letters are tokens") {
//!     next = generator.next(token)?;
//! }
//! for _ in 0..20 {
//!     print!("{}", vocabulary.text(next));
//!     next = generator.next(next)?;
//! }
//! # Ok::<(), litz::Error>(())
//! ```
//!
//! Such a model takes a token and its position, each an integer or a tensor of one, and maybe numbers called `temperature`
//! and `seed`. Its first result is the next token, or the logits of all tokens, of which the largest is taken.

use crate::compiled::Compiled;
use crate::error::Error;
use crate::model::Model;
use litz_ir::graph::TensorType;
use litz_ir::{Diag, Dtype, Scalar};
use litz_runtime::Tensor;
use litz_runtime::program::Value;
use serde_json::Value as Json;

/// Where an archive says what its tokens are: `extra_files={"generation.json": ..}` of `torch.export.save`.
const DESCRIPTION: &str = "generation.json";

/// The text of each token.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    tokens: Vec<String>,
    /// Numbers of tokens that have a text, longest text first.
    longest_first: Vec<usize>,
}

impl Vocabulary {
    /// The list `vocabulary` of the archive's `generation.json`; None where it has none.
    ///
    /// # Errors
    /// When the file is damaged, or `vocabulary` is no list of texts.
    pub fn of(model: &Model) -> Result<Option<Vocabulary>, Error> {
        let Some(list) = described(model, "vocabulary")? else { return Ok(None) };
        let text = |item: &Json| item.as_str().map(str::to_owned);
        let tokens = list.as_array().and_then(|items| items.iter().map(text).collect());
        tokens
            .map(Vocabulary::new)
            .map(Some)
            .ok_or_else(|| damaged("expected a list of texts as `vocabulary`"))
    }

    /// The tokens of these texts, numbered from 0.
    pub fn new(tokens: Vec<String>) -> Vocabulary {
        let mut longest_first: Vec<usize> = (0..tokens.len()).filter(|&at| !tokens[at].is_empty()).collect();
        longest_first.sort_by_key(|&at| std::cmp::Reverse(tokens[at].len()));
        Vocabulary { tokens, longest_first }
    }

    /// The text as tokens: at each place the longest that fits.
    ///
    /// # Errors
    /// The first character that no token begins with.
    pub fn encode(&self, mut text: &str) -> Result<Vec<i64>, char> {
        let mut found = Vec::new();
        while let Some(first) = text.chars().next() {
            let token = self.longest_first.iter().find(|&&at| text.starts_with(&self.tokens[at]));
            let &token = token.ok_or(first)?;
            text = &text[self.tokens[token].len()..];
            found.push(token as i64);
        }
        Ok(found)
    }

    /// The text of a token; none of a number that is no token.
    pub fn text(&self, token: i64) -> &str {
        usize::try_from(token).ok().and_then(|at| self.tokens.get(at)).map_or("", String::as_str)
    }
}

/// How a model that samples by itself chooses among likely tokens.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Sampling {
    /// 0 takes the likeliest token, 1 each as often as it is likely. 0.8 where the model takes one and none is given.
    pub temperature: Option<f64>,
    /// Which of all random choices: the same seed gives the same text. 0 where the model takes one and none is given.
    pub seed: Option<i64>,
}

/// Gives a model one token after another.
pub struct Generator<'a> {
    compiled: &'a Compiled,
    inputs: Vec<Tensor>,
    token: TensorType,
    place: TensorType,
    position: i64,
    context: Option<i64>,
}

impl<'a> Generator<'a> {
    /// A text from its beginning on. What the model saw of another text is not looked at, as positions count from 0 again.
    ///
    /// # Errors
    /// When the model does not take what this module says, or no sampling.
    pub fn new(model: &Model, compiled: &'a Compiled, sampling: &Sampling) -> Result<Generator<'a>, Error> {
        let wanted = model.inputs();
        let [(_, token), (_, place), others @ ..] = &wanted[..] else {
            return Err(unsupported(
                "a model that takes a token and its position",
                "fewer inputs".to_owned(),
            ));
        };
        let mut inputs = Vec::with_capacity(wanted.len());
        for (what, ty) in [("a token", token), ("its position", place)] {
            let expected = || unsupported(&format!("one integer as {what}"), ty.to_string());
            inputs.push(number(ty, Scalar::Int(0)).ok_or_else(expected)?);
        }
        let (mut temperature, mut seed) = (sampling.temperature, sampling.seed);
        for (name, ty) in others {
            let value = match *name {
                "temperature" => Scalar::Float(temperature.take().unwrap_or(0.8)),
                "seed" => Scalar::Int(seed.take().unwrap_or(0)),
                _ => {
                    let expected = "no inputs but a token, its position, `temperature` and `seed`";
                    return Err(unsupported(expected, format!("`{name}`")));
                }
            };
            let tensor = number(ty, value);
            inputs
                .push(tensor.ok_or_else(|| unsupported(&format!("one number as `{name}`"), ty.to_string()))?);
        }
        for (name, given) in [("temperature", temperature.is_some()), ("seed", seed.is_some())] {
            if given {
                let found = format!("a model that takes no {name}");
                return Err(unsupported(&format!("an input called `{name}`"), found));
            }
        }
        let context = described(model, "context")?.as_ref().and_then(Json::as_i64);
        let (token, place) = (token.clone().into_owned(), place.clone().into_owned());
        Ok(Generator { compiled, inputs, token, place, position: 0, context })
    }

    /// How many tokens the model has seen.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// How many tokens the model can see, where the archive says so: `context` of `generation.json`.
    pub fn context(&self) -> Option<i64> {
        self.context
    }

    /// Shows the model the token at the next position, and returns the one that it chooses to follow.
    ///
    /// # Errors
    /// When the call fails: past the last position, as the model checks it; or when no token is among the results.
    pub fn next(&mut self, token: i64) -> Result<i64, Error> {
        for (at, ty, value) in [(0, &self.token, token), (1, &self.place, self.position)] {
            let diag = || Diag::new("bad-token", format!("{value} is no {}", ty.dtype));
            self.inputs[at] = number(ty, Scalar::Int(value)).ok_or_else(|| Error::Invalid(vec![diag()]))?;
        }
        let results = self.compiled.run(&self.inputs)?;
        self.position += 1;
        let found = results
            .first()
            .and_then(Value::tensor)
            .ok_or_else(|| unsupported("the next token or its logits as first result", "none".to_owned()))?;
        let next = if found.dtype().is_float() { likeliest(found) } else { only(found) };
        let found = || format!("{}{:?}", found.dtype().name(), found.sizes());
        next.ok_or_else(|| unsupported("one token, or logits of all, as first result", found()))
    }
}

/// The only element.
fn only(tensor: &Tensor) -> Option<i64> {
    match tensor.to_f64()[..] {
        [token] => Some(token as i64),
        _ => None,
    }
}

/// Where the largest element is, the first of equal ones.
fn likeliest(logits: &Tensor) -> Option<i64> {
    if logits.numel() != *logits.sizes().last()? {
        return None;
    }
    let elements = logits.to_f64();
    let larger = |best: usize, at: usize| if elements[at] > elements[best] { at } else { best };
    (0..elements.len()).reduce(larger).map(|at| at as i64)
}

/// A tensor of one number, of that type; None where the type has more than one element, or holds no such numbers.
fn number(ty: &TensorType, value: Scalar) -> Option<Tensor> {
    let is_one = ty.sizes.iter().all(|size| size.is_one());
    let sizes = vec![1; ty.sizes.len()];
    let tensor = match (ty.dtype, value) {
        (Dtype::I64, Scalar::Int(value)) => Tensor::from_slice(&sizes, &[value]),
        (Dtype::I32, Scalar::Int(value)) => Tensor::from_slice(&sizes, &[i32::try_from(value).ok()?]),
        (Dtype::F32, Scalar::Float(value)) => Tensor::from_slice(&sizes, &[value as f32]),
        (Dtype::F64, Scalar::Float(value)) => Tensor::from_slice(&sizes, &[value]),
        _ => return None,
    };
    tensor.ok().filter(|_| is_one)
}

/// What the archive's description says under a name.
fn described(model: &Model, name: &str) -> Result<Option<Json>, Error> {
    let Some(text) = model.extra(DESCRIPTION)? else { return Ok(None) };
    let mut json: Json = serde_json::from_str(text).map_err(|error| damaged(&error.to_string()))?;
    Ok(json.get_mut(name).map(Json::take))
}

fn damaged(message: &str) -> Error {
    Error::Invalid(vec![Diag::new("bad-json", format!("extra/{DESCRIPTION}: {message}"))])
}

fn unsupported(expected: &str, found: String) -> Error {
    let help = "export one step: (token, position) to the next token, earlier ones in buffers, as examples/make_text_model.py";
    let diag = Diag::new("unsupported-model", format!("expected {expected}, found {found}"));
    Error::Unsupported(vec![diag.help(help)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_token_is_taken() {
        let tokens = ["a", "b", "ab", "abc", "", "é"].map(str::to_owned).to_vec();
        let vocabulary = Vocabulary::new(tokens);
        assert_eq!(vocabulary.encode("abcabaé"), Ok(vec![3, 2, 0, 5]));
        assert_eq!(vocabulary.encode(""), Ok(vec![]));
        assert_eq!(vocabulary.encode("ax"), Err('x'));
        assert_eq!(["abc", "", ""], [3, -1, 6].map(|token| vocabulary.text(token)));
    }

    #[test]
    fn the_first_of_the_largest_logits_is_taken() {
        let logits =
            Tensor::from_slice(&[1, 1, 4], &[0.5f32, 2.0, f32::NEG_INFINITY, 2.0]).expect("a tensor");
        assert_eq!(likeliest(&logits), Some(1));
        assert_eq!(likeliest(&Tensor::from_slice(&[2, 1], &[1.0f32, 2.0]).expect("a tensor")), None);
    }
}
