//! Tries a range of hostile calls, one line each: `hostile FROM TO [EVERY]`, or writes them all: `hostile calls`.
//!
//! Before each call its number is written, so that whoever started this knows which one a crash belongs to. Every
//! EVERY-th call also runs natively.

use std::io::{self, Write};
use std::process::ExitCode;

use litz_testing::hostile::{self, Where};

fn main() -> io::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let calls = match hostile::calls() {
        Ok(calls) => calls,
        Err(error) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut out = io::stdout().lock();
    if args.first().is_some_and(|arg| arg == "calls") {
        for call in &calls {
            writeln!(out, "# {}", call.name)?;
            write!(out, "{}", call.case)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let number = |at: usize| args.get(at).and_then(|arg| arg.parse::<usize>().ok());
    let (Some(from), Some(to)) = (number(0), number(1)) else {
        eprintln!("usage: hostile FROM TO [EVERY], or hostile calls");
        return Ok(ExitCode::FAILURE);
    };
    let every = number(2).unwrap_or(usize::MAX).max(1);
    for (at, call) in calls.iter().enumerate().take(to).skip(from) {
        write!(out, "{at} ")?;
        out.flush()?;
        let place = if at % every == 0 { Where::Native } else { Where::Reference };
        writeln!(out, "{}", hostile::judged(call, &hostile::attempt(&call.case, place)))?;
    }
    Ok(ExitCode::SUCCESS)
}
