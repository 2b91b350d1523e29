//! Finds the user's line of a program in a Python stack trace.

/// The innermost frame that belongs to neither torch nor generated code, as `model.py:12`; failing that, the innermost
/// of torch.
pub(crate) fn source_line(trace: &str) -> Option<String> {
    let frames: Vec<(&str, &str)> =
        trace.lines().filter_map(frame).filter(|(path, _)| !path.starts_with('<')).collect();
    let is_users = |(path, _): &&(&str, &str)| !path.contains("/torch/") && !path.starts_with("torch/");
    let (path, line) = frames.iter().rev().find(is_users).or_else(|| frames.last())?;
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    Some(format!("{file}:{line}"))
}

/// Path and line of `File "model.py", line 12, in forward`.
fn frame(line: &str) -> Option<(&str, &str)> {
    let (path, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (digits > 0).then(|| (path, &rest[..digits]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_frame_of_the_user_wins() {
        let trace = "File \"/home/me/model.py\", line 12, in forward\n    return self.fc(x)\n  \
                     File \"/env/site-packages/torch/nn/modules/linear.py\", line 125, in forward\n    \
                     return F.linear(x)\n  File \"<eval_with_key>.2\", line 5, in forward";
        assert_eq!(source_line(trace).as_deref(), Some("model.py:12"));
        assert_eq!(source_line("File \"torch/fx/x.py\", line 24, in f").as_deref(), Some("x.py:24"));
        assert_eq!(source_line("File \"<string>\", line 1, in f"), None);
        assert_eq!(source_line("no trace \u{e9} File \"a.py\", line x"), None);
    }
}
