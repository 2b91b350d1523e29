//! Finds relative links of Markdown pages that lead nowhere: to a file that the repository does not have, or a heading that a page lacks.

use std::collections::{BTreeMap, BTreeSet};

/// A problem for each link of `pages`, which are those of the repository by path, to what is not one of its `files`, or not a heading.
pub fn problems(files: &BTreeSet<String>, pages: &BTreeMap<String, String>) -> Vec<String> {
    let headings: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|(path, text)| (path.as_str(), headings(text))).collect();
    let mut problems = Vec::new();
    for (page, text) in pages {
        for target in links(text) {
            if let Some(problem) = problem(page, &target, files, &headings) {
                problems.push(format!("{page}: the link to {target}: {problem}"));
            }
        }
    }
    problems
}

fn problem(
    page: &str,
    target: &str,
    files: &BTreeSet<String>,
    headings: &BTreeMap<&str, BTreeSet<String>>,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) =
        target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let Some(path) = (if file.is_empty() { Some(page.to_string()) } else { joined(page, file) }) else {
        return Some("expected a path inside of the repository, from the page on".to_string());
    };
    let is_folder =
        || files.range(format!("{path}/")..).next().is_some_and(|file| file.starts_with(&format!("{path}/")));
    if !path.is_empty() && !files.contains(&path) && !is_folder() {
        return Some(format!("there is no {path}"));
    }
    let (heading, there) = (heading?, headings.get(path.as_str())?);
    (!there.contains(heading)).then(|| format!("{path} has no heading `{heading}`"))
}

/// The path from the root of the repository that `file` is from the folder of `page`; none outside of the root.
fn joined(page: &str, file: &str) -> Option<String> {
    if file.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines of a page that are text, those of blocks of code left out.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fence: Option<&str> = None;
    text.lines().filter(move |line| {
        let line = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return true,
            (Some(_), _) => {}
        }
        false
    })
}

/// What the links of a page lead to: `[text](target)`, `![text](target "title")` and `[name]: target`, code left out.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A link may go on in the next line, and so may code inside of a line.
    let prose: Vec<&str> = prose(text).collect();
    let text = without_code(&prose.join("\n"));
    let mut rest = text.as_str();
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let end = rest.find(')').unwrap_or(rest.len());
        found.extend(rest[..end].split_whitespace().next().map(str::to_string));
    }
    for line in text.lines() {
        let named = line.strip_prefix('[').and_then(|line| line.split_once("]: "));
        found.extend(named.and_then(|(_, target)| target.split_whitespace().next()).map(str::to_string));
    }
    found.iter().map(|target| target.trim_matches(['<', '>']).to_string()).collect()
}

/// A text without what stands between as many backquotes on either side.
fn without_code(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('`') {
        let (before, code) = rest.split_at(at);
        kept.push_str(before);
        let inside = code.trim_start_matches('`');
        let marks = &code[..code.len() - inside.len()];
        rest = inside.split_once(marks).map_or(inside, |(_, rest)| rest);
    }
    kept + rest
}

/// The names by which links call the headings of a page, as GitHub makes them: small letters, `-` for blanks, no punctuation, and
/// numbers behind names that were there before.
fn headings(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for line in prose(text) {
        let words = line.trim_start_matches('#');
        if words.len() == line.len() || !words.starts_with(' ') {
            continue;
        }
        let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let name: String = words.trim().to_lowercase().chars().filter(|&c| kept(c)).collect();
        let name = name.replace(' ', "-");
        let count = counts.entry(name.clone()).or_default();
        names.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<String, String> =
            pages.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        let others = ["LICENSE", "docs/adr/0001.png"].map(str::to_string);
        problems(&pages.keys().cloned().chain(others).collect(), &pages)
    }

    #[test]
    fn links_to_files_folders_and_headings_hold() {
        let readme = "# Litz\n[a](docs/tour.md) [b](docs/tour.md#what-is-it-1) [c](LICENSE) [d](docs/adr) [e](docs/adr/) [f](#litz)
            ![g](docs/adr/0001.png \"a plan\") [h](https://example.org/x#y) [i](mailto:a@example.org)\n[j]: docs/tour.md\n";
        let tour = "# Tour\n## What is it?\n## What is it\n[up](../README.md#litz) [here](./tour.md) [a\nlink](adr/0001.png)\n";
        assert_eq!(found(&[("README.md", readme), ("docs/tour.md", tour)]), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for (link, problem) in [
            ("[a](docs/none.md)", "there is no docs/none.md"),
            ("[a](doc)", "there is no doc"),
            ("[a](#none)", "README.md has no heading `none`"),
            ("[a](docs/tour.md#none)", "docs/tour.md has no heading `none`"),
            ("[a](docs/tour.md#code)", "docs/tour.md has no heading `code`"),
            ("[a](/docs/tour.md)", "expected a path inside"),
            ("[a](../tour.md)", "expected a path inside"),
            ("[a]: tour.md", "there is no tour.md"),
            ("`x` [a](b.md) `y`", "there is no b.md"),
        ] {
            let tour = "# Tour\n```\n# code\n[no link](none.md)\n```\n";
            let found = found(&[("README.md", &format!("{link}\n")), ("docs/tour.md", tour)]);
            assert!(found.len() == 1 && found[0].contains(problem), "{link}: {found:?}");
        }
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(found(&[("README.md", "`a[i](j)` and ``b`[i](j)``\n~~~\n[a](none.md)\n~~~\n")]), [""; 0]);
    }
}
