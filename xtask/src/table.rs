//! Formats rows of words as an aligned text table.

/// Columns two blanks apart, the first to the left, numbers (what starts with a digit or is `-`) to the right.
pub fn format(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|word| word.to_string()).collect();
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            std::iter::once(&header).chain(rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    let numeric: Vec<bool> = (0..header.len())
        .map(|column| column > 0 && rows.iter().all(|row| is_number(&row[column])))
        .collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let cells = row.iter().enumerate().map(|(column, word)| {
            let width = widths[column];
            if numeric[column] { format!("{word:>width$}") } else { format!("{word:<width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn is_number(word: &str) -> bool {
    word == "-" || word.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [
            vec!["bert".into(), "9.5".into(), "pass".into()],
            vec!["lstm".into(), "-".into(), "wrong".into()],
        ];
        let text = super::format(&["model", "ms", "result"], &rows);
        assert_eq!(text, "model   ms  result\nbert   9.5  pass\nlstm     -  wrong\n");
    }
}
