//! Parses a test file: what it shows, settings, texts, data, and the output that it expects.

use std::path::{Path, PathBuf};

/// A test file. Lines begin with `//!` (what it shows, settings), `//---` (another text follows), `//<` and `//>`
/// (data in and out), `//:` (what has to hold of a run), `//|` (expected output); the others are texts.
pub struct TestFile {
    path: PathBuf,
    /// All lines, as they are.
    source: String,
    /// `key: value` lines of the header.
    pub settings: Vec<(String, String)>,
    /// The texts in order, with the comments inside them.
    pub texts: Vec<String>,
    /// Lines of data without what marks them: `<` or `>`, and the rest.
    pub data: Vec<(char, String)>,
    /// What has to hold of a run, without what marks it: `counts sectors <= 1.05`.
    pub claims: Vec<String>,
    expected: String,
}

impl TestFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<TestFile, String> {
        let source = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let (mut settings, mut data, mut expected) = (Vec::new(), Vec::new(), String::new());
        let mut claims = Vec::new();
        let mut texts = vec![String::new()];
        let mut sentences = 0;
        for line in source.lines() {
            if let Some(header) = line.strip_prefix("//! ") {
                match header.split_once(": ").filter(|(key, _)| {
                    key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
                }) {
                    Some((key, value)) => settings.push((key.to_owned(), value.to_owned())),
                    None => sentences += 1,
                }
            } else if let Some(line) = line.strip_prefix("//|") {
                expected += &format!("{}\n", line.strip_prefix(' ').unwrap_or(line));
            } else if let Some(marked) = line.strip_prefix("//<").or_else(|| line.strip_prefix("//>")) {
                data.push((char::from(line.as_bytes()[2]), marked.trim().to_owned()));
            } else if let Some(claim) = line.strip_prefix("//: ") {
                claims.push(claim.to_owned());
            } else if line == "//---" {
                texts.push(String::new());
            } else if let Some(text) = texts.last_mut() {
                *text += &format!("{line}\n");
            }
        }
        if sentences == 0 {
            return Err("expected a first line `//! what this shows`".into());
        }
        Ok(TestFile { path: path.to_owned(), source, settings, texts, data, claims, expected })
    }

    /// Compares output with the expected lines, or makes it the expected lines where `LITZ_BLESS` is set.
    pub fn expect(&self, found: &str) -> Result<(), String> {
        if std::env::var_os("LITZ_BLESS").is_some_and(|value| !value.is_empty()) {
            return self.bless(found);
        }
        if found == self.expected {
            return Ok(());
        }
        let same = |(a, b): &(&str, &str)| a == b;
        let line = found.lines().zip(self.expected.lines()).take_while(same).count();
        let at = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
        Err(format!(
            "line {} of the output: expected\n    {}\nfound\n    {}\nin\n{found}\n`cargo xtask bless` writes it into the file",
            line + 1,
            at(&self.expected),
            at(found)
        ))
    }

    fn bless(&self, found: &str) -> Result<(), String> {
        let kept: Vec<&str> = self.source.lines().filter(|line| !line.starts_with("//|")).collect();
        let mut text = format!("{}\n\n", kept.join("\n").trim_end());
        for line in found.lines() {
            text += format!("//| {line}").trim_end();
            text.push('\n');
        }
        if text == self.source {
            return Ok(());
        }
        std::fs::write(&self.path, text).map_err(|e| format!("{}: {e}", self.path.display()))
    }
}
