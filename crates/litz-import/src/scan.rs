//! Splits a text into tokens: the scanner that the readers of the small languages inside strings share.

use crate::number::Problem;

/// What is left of a text.
pub(crate) struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// At the beginning of `text`.
    pub fn new(text: &'a str) -> Scanner<'a> {
        Scanner { rest: text }
    }

    /// The character after white space.
    pub fn peek(&self) -> Option<char> {
        self.rest.trim_start().chars().next()
    }

    /// Whether one of these characters is next, without white space between.
    pub fn is_next(&self, chars: &[char]) -> bool {
        self.rest.starts_with(chars)
    }

    /// Characters up to the first that is no part.
    pub fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// As [`Scanner::take`], after white space.
    pub fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        self.take(is_part)
    }

    /// Takes `token`, if it is next.
    pub fn accept(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// As [`Scanner::accept`], if no part of a name follows.
    pub fn keyword(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word).filter(|rest| !rest.starts_with(is_name_part));
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes `token`, which must be next.
    pub fn token(&mut self, token: &str) -> Result<(), Problem> {
        if self.accept(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }

    /// The problem that something else is next.
    pub fn expected(&self, what: &str) -> Problem {
        let found: String = self.rest.trim_start().chars().take(20).collect();
        Problem::Bad(format!("expected {what}, found `{found}`"))
    }
}

/// A character of a name.
pub(crate) fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
