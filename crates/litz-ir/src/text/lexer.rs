//! Splits text into tokens: one lexer for all five IRs.
//!
//! Words are `[A-Za-z_][A-Za-z0-9_.]*`; `%` and `@` lead names of values and items. Comments run from `//` to the end
//! of the line. Any text is accepted or refused in time linear in its length.

use crate::diag::Diag;
use crate::text::print::is_word;

/// What a token is; its text tells the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// `f32`, `aten.mm.default`, `return`.
    Word,
    /// `%x`, `%"odd name"`.
    Value,
    /// `@mlp`, `@"odd name"`.
    Item,
    /// `768`, without a sign.
    Int,
    /// `0.5`, `1e-5`, without a sign.
    Float,
    /// `"text"`, quotes and escapes included.
    Str,
    /// `[`, `<=`, `->`.
    Punct,
    /// The end of the text, always the last token.
    End,
}

/// A piece of the text, by byte offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

const PAIRS: [&str; 5] = ["<=", ">=", "==", "!=", "->"];
const SINGLES: &[u8] = b"{}[]()<>=:,|+-*.!?";

/// All tokens of `text`; the last one is [`TokenKind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, Diag> {
    // Most tokens are followed by a blank or a bracket.
    let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
    let mut at = 0;
    loop {
        at = skip_blanks(text.as_bytes(), at);
        let (kind, end) = token_at(text, at)?;
        tokens.push(Token { kind, start: at, end });
        if kind == TokenKind::End {
            return Ok(tokens);
        }
        at = end;
    }
}

fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at += count(bytes, at, |b| b.is_ascii_whitespace());
        if !bytes[at..].starts_with(b"//") {
            return at;
        }
        at += count(bytes, at, |b| b != b'\n');
    }
}

/// Number of bytes from `at` on that are accepted.
fn count(bytes: &[u8], at: usize, accept: impl Fn(u8) -> bool) -> usize {
    bytes[at..].iter().take_while(|&&b| accept(b)).count()
}

/// Kind and end of the token at `at`.
fn token_at(text: &str, at: usize) -> Result<(TokenKind, usize), Diag> {
    let bytes = text.as_bytes();
    let Some(&first) = bytes.get(at) else { return Ok((TokenKind::End, at)) };
    match first {
        b'A'..=b'Z' | b'a'..=b'z' | b'_' => Ok((TokenKind::Word, at + count(bytes, at, is_word))),
        b'%' => Ok((TokenKind::Value, sigil_end(text, at)?)),
        b'@' => Ok((TokenKind::Item, sigil_end(text, at)?)),
        b'0'..=b'9' => Ok(number_end(bytes, at)),
        b'"' => Ok((TokenKind::Str, string_end(text, at)?)),
        _ if PAIRS.iter().any(|pair| bytes[at..].starts_with(pair.as_bytes())) => {
            Ok((TokenKind::Punct, at + 2))
        }
        _ if SINGLES.contains(&first) => Ok((TokenKind::Punct, at + 1)),
        _ => {
            let found = text[at..].chars().next().unwrap_or_default();
            Err(error(text, at, format!("unexpected character {found:?}")))
        }
    }
}

fn sigil_end(text: &str, at: usize) -> Result<usize, Diag> {
    let bytes = text.as_bytes();
    if bytes.get(at + 1) == Some(&b'"') {
        return string_end(text, at + 1);
    }
    match count(bytes, at + 1, is_word) {
        0 => Err(error(text, at, format!("expected a name after `{}`", char::from(bytes[at])))),
        length => Ok(at + 1 + length),
    }
}

fn number_end(bytes: &[u8], start: usize) -> (TokenKind, usize) {
    let digits = |at: usize| count(bytes, at, |b| b.is_ascii_digit());
    let mut kind = TokenKind::Int;
    let mut at = start + digits(start);
    if bytes.get(at) == Some(&b'.') && digits(at + 1) > 0 {
        kind = TokenKind::Float;
        at += 1 + digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = if bytes.len() > at + sign { digits(at + 1 + sign) } else { 0 };
        if exponent > 0 {
            return (TokenKind::Float, at + 1 + sign + exponent);
        }
    }
    (kind, at)
}

/// One past the closing quote of the string whose opening quote is at `at`.
fn string_end(text: &str, at: usize) -> Result<usize, Diag> {
    let mut bytes = text.bytes().enumerate().skip(at + 1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Ok(at + 1),
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    Err(error(text, at, "string has no end"))
}

/// A `syntax` diagnostic at a byte offset.
pub(crate) fn error(text: &str, at: usize, message: impl Into<String>) -> Diag {
    let (line, column) = position(text, at);
    Diag::new("syntax", message).at(line, column)
}

/// Line and column of a byte offset, both from 1; columns count characters.
pub(crate) fn position(text: &str, at: usize) -> (u32, u32) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
    // Continuation bytes of UTF-8 belong to the character before them.
    let column = before[start..].iter().filter(|&&b| b & 0xC0 != 0x80).count() + 1;
    (line.try_into().unwrap_or(u32::MAX), column.try_into().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        let tokens = tokens(text).expect("lexes");
        tokens.iter().map(|token| (token.kind, &text[token.start..token.end])).collect()
    }

    #[test]
    fn splits_words_numbers_and_operators() {
        use TokenKind::{End, Float, Int, Item, Punct, Str, Value, Word};
        let found = kinds("%x: f32[1, 2.5e-3] <= n0.body -> @k // note\n 7e \"a\\\"b\" %\"o d\"");
        let expected = [
            (Value, "%x"),
            (Punct, ":"),
            (Word, "f32"),
            (Punct, "["),
            (Int, "1"),
            (Punct, ","),
            (Float, "2.5e-3"),
            (Punct, "]"),
            (Punct, "<="),
            (Word, "n0.body"),
            (Punct, "->"),
            (Item, "@k"),
            (Int, "7"),
            (Word, "e"),
            (Str, "\"a\\\"b\""),
            (Value, "%\"o d\""),
            (End, ""),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_end_where_they_must() {
        for (text, kind, end) in [
            ("1.", TokenKind::Int, 1),
            ("1e", TokenKind::Int, 1),
            ("1e+", TokenKind::Int, 1),
            ("1e+5", TokenKind::Float, 4),
            ("1.5e", TokenKind::Float, 3),
            ("5e-324", TokenKind::Float, 6),
        ] {
            assert_eq!(number_end(text.as_bytes(), 0), (kind, end), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_token_with_its_position() {
        for (text, at) in [
            ("a\n  \u{e9}", (2, 3)),
            ("\u{e9}\"", (1, 1)),
            ("\"\u{e9}\" ~", (1, 5)),
            ("% x", (1, 1)),
            ("x \"a\\\"", (1, 3)),
        ] {
            assert_eq!(tokens(text).expect_err(text).at, Some(at), "{text}");
        }
    }
}
