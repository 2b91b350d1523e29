//! `litz generate` goes on with a text, token by token, and says how fast.

use super::failure::{Exit, Failure};
use super::options::Compiling;
use super::{load, output};
use litz::generate::{Generator, Sampling, Vocabulary};
use std::path::PathBuf;
use std::time::Instant;

/// What to go on with, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Archive of one step of a language model: `examples/make_text_model.py` makes one
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// The text to go on with; for a model without a vocabulary, numbers of tokens
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// How many tokens to add [default: as many as the model can see, at most 200]
    #[arg(long, value_name = "N")]
    tokens: Option<u32>,
    /// 0 takes the likeliest token, 1 each as often as it is likely [default: 0.8, where the model samples]
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Which of all random choices; the same one gives the same text [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<i64>,
    #[command(flatten)]
    common: Compiling,
}

/// Tokens that are added where the command line does not say how many.
const TOKENS: i64 = 200;

/// Prints the prompt and what follows it; times go to standard error.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let model = load::open(&args.model, &args.which)?;
    let vocabulary = Vocabulary::of(&model)?;
    let prompt = tokens(&args.prompt, vocabulary.as_ref())?;
    let [first, others @ ..] = &prompt[..] else {
        return Err(Failure::invalid("`--prompt`: expected at least one token"));
    };
    let start = Instant::now();
    let compiled = load::compile(&model, &args.common.options())?;
    let compiling = start.elapsed();
    args.common.print_timings(&compiled.timings);
    let sampling = Sampling { temperature: args.temperature, seed: args.seed };
    let mut generator = Generator::new(&model, &compiled, &sampling)?;

    let room = generator.context().map(|context| context - prompt.len() as i64 + 1);
    let wanted = args.tokens.map_or_else(|| room.map_or(TOKENS, |room| room.clamp(0, TOKENS)), i64::from);
    if let (Some(room), Some(context)) = (room, generator.context())
        && wanted > room
    {
        return Err(Failure::invalid(format_args!(
            "`--tokens`: the model sees {context} tokens at once, of which the prompt has {}: expected at most {}, found {wanted}",
            prompt.len(),
            room.max(0)
        )));
    }
    let shown = |token: i64| match &vocabulary {
        Some(vocabulary) => vocabulary.text(token).to_owned(),
        None => format!(" {token}"),
    };
    output::print(&args.prompt)?;
    let start = Instant::now();
    let mut next = generator.next(*first)?;
    for &token in others {
        next = generator.next(token)?;
    }
    let reading = start.elapsed();
    let start = Instant::now();
    for at in 1..=wanted {
        output::print(shown(next))?;
        // What follows the last token is not asked for.
        if at < wanted {
            next = generator.next(next)?;
        }
    }
    let writing = start.elapsed();
    output::print("\n")?;
    let rate = |count: i64, time: std::time::Duration| count as f64 / time.as_secs_f64().max(1e-9);
    let took = compiled.statistics();
    output::note(format_args!(
        "\ncompiled in {:.0} ms ({} compilation); prompt: {} tokens, {:.0} a second; text: {wanted} tokens, {:.0} a second; \
         memory beside the weights: {:.1} KiB\n",
        1e3 * compiling.as_secs_f64(),
        model.compilations(),
        prompt.len(),
        rate(prompt.len() as i64, reading),
        rate((wanted - 1).max(0), writing),
        took.peak_bytes as f64 / 1024.0,
    ));
    Ok(Exit::Ok)
}

/// The prompt as tokens.
fn tokens(prompt: &str, vocabulary: Option<&Vocabulary>) -> Result<Vec<i64>, Failure> {
    let Some(vocabulary) = vocabulary else {
        let number = |word: &str| {
            word.parse().map_err(|_| {
                Failure::invalid(format_args!(
                    "`--prompt`: expected numbers of tokens, as the archive has no vocabulary, found `{word}`"
                ))
            })
        };
        return prompt.split_whitespace().map(number).collect();
    };
    vocabulary.encode(prompt).map_err(|unknown| {
        Failure::invalid(format_args!("`--prompt`: the model has no token for `{}`", unknown.escape_debug()))
    })
}
