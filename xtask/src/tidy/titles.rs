//! Checks that titles of commits and of decision records can be read in a list: one change or decision, in one short line.

use std::collections::BTreeMap;

use crate::command::{command, output};

/// Titles of commits behind this one are checked; those before it were written by other rules.
const FROM: &str = "3ddcbd1d24496763505787a8c60b1bf0502b1fe4";

/// What tools that list commits and pages show of a title.
const MOST_CHARACTERS: usize = 72;

/// Where decision records are, one page each, and the page that lists them.
const RECORDS: &str = "docs/adr/";
const INDEX: &str = "docs/adr/README.md";

/// A problem for each commit behind [`FROM`] with a title that breaks a rule. Merges are none of these: their titles name branches.
pub fn commits() -> anyhow::Result<Vec<String>> {
    let git = |words: &[&str]| output(command("git").args(words));
    let range = if git(&["merge-base", "--is-ancestor", FROM, "HEAD"]).is_ok() {
        format!("{FROM}..HEAD")
    } else if git(&["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        // What a clone has without its older history is behind the commit that it lacks.
        "HEAD".to_string()
    } else {
        eprintln!("tidy: titles of commits are not checked, as this history does not have {FROM}");
        return Ok(Vec::new());
    };
    let log = git(&["log", "--no-merges", "--format=%h %s", &range])?;
    let problem = |line: &str| {
        let (hash, title) = line.split_once(' ').unwrap_or((line, ""));
        commit_problem(title).map(|problem| format!("commit {hash}: {problem}: {title}"))
    };
    Ok(log.lines().filter_map(problem).collect())
}

/// What is wrong with the title of a commit.
fn commit_problem(title: &str) -> Option<String> {
    let form = title.split_once(": ").is_some_and(|(part, change)| {
        let is_name = |word: &str| word.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
        part.split(", ").all(|name| !name.is_empty() && is_name(name)) && !change.trim().is_empty()
    });
    if form { line_problem(title) } else { Some("expected `part: one change`".to_string()) }
}

/// What is wrong with any title.
fn line_problem(title: &str) -> Option<String> {
    let characters = title.chars().count();
    if characters > MOST_CHARACTERS {
        Some(format!("{characters} characters, expected at most {MOST_CHARACTERS}"))
    } else if title.contains(';') {
        Some("expected one thing, found several, with `;` between them".to_string())
    } else if title.ends_with('.') {
        Some("expected no full stop at the end".to_string())
    } else {
        None
    }
}

/// A problem for each of the pages that is a decision record and has another name or title than records have, or another title than
/// the list of records has.
pub fn records(pages: &BTreeMap<String, String>) -> Vec<String> {
    let index = pages.get(INDEX).map_or("", String::as_str);
    let mut problems = Vec::new();
    let mut numbers: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, text) in pages {
        let Some(name) = path.strip_prefix(RECORDS).filter(|_| path != INDEX) else { continue };
        let Some(number) = number(name) else {
            problems.push(format!("{path}: expected a name such as `0042-few-words.md`"));
            continue;
        };
        if let Some(other) = numbers.insert(number, name) {
            problems.push(format!("{path}: {other} has the same number"));
        }
        let head = text.lines().next().unwrap_or("");
        let Some(title) = head.strip_prefix(&format!("# {number}: ")) else {
            problems.push(format!("{path}: expected `# {number}: title` on the first line, found `{head}`"));
            continue;
        };
        problems.extend(line_problem(title).map(|problem| format!("{path}: {problem}: {title}")));
        // What became of a record follows its title in parentheses.
        let row = format!("| [{number}]({name}) | {title}");
        let listed = index.lines().filter_map(|line| line.strip_prefix(row.as_str()));
        if !listed.into_iter().any(|rest| rest == " |" || rest.starts_with(" (")) {
            problems.push(format!("{INDEX}: expected a line that begins with `{row}`"));
        }
    }
    problems
}

/// The number that the name of a record begins with.
fn number(name: &str) -> Option<&str> {
    let (number, words) = name.strip_suffix(".md")?.split_once('-')?;
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let holds = number.len() == 4
        && number.chars().all(|c| c.is_ascii_digit())
        && !words.is_empty()
        && words.chars().all(is_word);
    holds.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_a_part_and_one_change() {
        for title in [
            "passes: pad rows against L1 set conflicts",
            "sym, ops: floats of sizes",
            "torch.compile: one pool of threads",
            "README: status",
        ] {
            assert_eq!(commit_problem(title), None, "{title}");
        }
        for title in [
            "pad rows",
            "passes:",
            "passes: ",
            ": pad rows",
            "passes: pad rows.",
            "passes: pad; unpad",
            "the pass that pads: rows",
        ] {
            assert!(commit_problem(title).is_some(), "{title}");
        }
        let of = |characters: usize| format!("ops: {}", "é".repeat(characters - 5));
        assert_eq!(commit_problem(&of(MOST_CHARACTERS)), None);
        assert!(commit_problem(&of(MOST_CHARACTERS + 1)).is_some());
    }

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        records(&pages.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
    }

    const LIST: (&str, &str) =
        (INDEX, "# Decisions\n| [0007](0007-half-types.md) | Half types (superseded by 0009) |\n");

    #[test]
    fn a_record_has_a_number_and_its_title_is_listed() {
        let page = |path, text| found(&[(path, text), LIST]);
        assert_eq!(page("docs/adr/0007-half-types.md", "# 0007: Half types\n"), [""; 0]);
        assert_eq!(page("docs/tour.md", "Tour\n"), [""; 0]);
        for (path, text, problem) in [
            ("docs/adr/0007-half-types.md", "# 0007. Half types\n", "expected `# 0007: title`"),
            ("docs/adr/0007-half-types.md", "# 0008: Half types\n", "expected `# 0007: title`"),
            ("docs/adr/0007-half-types.md", "# 0007: Half\n", "expected a line that begins"),
            (
                "docs/adr/0007-half-types.md",
                "# 0007: Half types and other types\n",
                "expected a line that begins",
            ),
            ("docs/adr/7-half-types.md", "# 7: Half types\n", "expected a name such as"),
            ("docs/adr/0008-halves.md", "# 0008: Half types\n", "expected a line that begins"),
        ] {
            let found = page(path, text);
            assert!(found.len() == 1 && found[0].contains(problem), "{path} {text}: {found:?}");
        }
        let both = [
            ("docs/adr/0007-half-types.md", "# 0007: Half types"),
            ("docs/adr/0007-halves.md", "# 0007: Half types"),
            LIST,
        ];
        assert!(found(&both)[0].contains("has the same number"));
    }
}
