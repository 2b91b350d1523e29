//! Puts reports on a page: one file of HTML that needs no other and no network.

use super::Report;
use serde_json::{Value, json};

const STYLE: &str = include_str!("page/style.css");

/// The script, in the order in which its parts need each other.
const SCRIPT: &[&str] = &[
    include_str!("page/dom.js"),
    include_str!("page/model.js"),
    include_str!("page/map.js"),
    include_str!("page/tables.js"),
    include_str!("page/plots.js"),
    include_str!("page/texts.js"),
    include_str!("page/main.js"),
];

/// What the page may do: run what is in it, and load nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page about models, or about the graphs of one. `notes` are lines that it begins with, such as why there are several.
pub fn page(title: &str, reports: &[Report], notes: &[String]) -> String {
    let models: Vec<&Value> = reports.iter().map(Report::data).collect();
    let data = json!({ "title": title, "litz": env!("CARGO_PKG_VERSION"), "notes": notes, "models": models });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Litz</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<noscript>This page is drawn by a script that it contains.</noscript>\n<main id=\"page\"></main>\n\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
        inert(&data),
        SCRIPT.concat()
    )
}

/// JSON in which nothing is markup, whatever names a model has: what begins tags, comments and entities is there by its number.
fn inert(data: &Value) -> String {
    let text = data.to_string();
    let mut inert = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => inert += &format!("\\u{:04x}", u32::from(char)),
            _ => inert.push(char),
        }
    }
    inert
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        let hostile = "</script><script>alert(1)</script><!-- &amp; \u{2028}";
        let data = json!({ "name": hostile });
        let page = page(hostile, &[Report { data: data.clone() }], &[hostile.to_owned()]);
        // Its own two scripts, and no other tag than its own.
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
        assert!(!page.contains("alert(1)<") && !page.contains("<!--") && !page.contains('\u{2028}'));
        assert_eq!(inert(&data).parse::<Value>().ok(), Some(data));
    }

    #[test]
    fn the_page_asks_for_nothing() {
        let page = page("t", &[], &[]);
        for address in ["http://", "https://", "src=", "@import", "url("] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(address), "{address}");
        }
    }
}
