//! Finds where in the user's program a node comes from, in what archives say of it.

/// The innermost frame that belongs to neither torch nor generated code, as `model.py:12`; failing that, the innermost
/// of torch.
pub(crate) fn source_line(trace: &str) -> Option<String> {
    let frames = frames(trace);
    let is_users = |(path, _): &&(&str, &str)| !path.contains("/torch/") && !path.starts_with("torch/");
    let (path, line) = frames.iter().rev().find(is_users).or_else(|| frames.last())?;
    Some(place(path, line))
}

/// All frames that belong to no generated code, from the outside to the inside, each as `model.py:12`.
pub(crate) fn source_lines(trace: &str) -> Vec<String> {
    frames(trace).into_iter().map(|(path, line)| place(path, line)).collect()
}

/// The path of the innermost module, `layers.3.mlp.up`, of a text such as
/// `L__self__,,model.Model;L__self___layers_3,L['self'].layers[3],model.Layer`: a key, a path and a type for each module. The outermost
/// module has no path.
pub(crate) fn module_path(text: &str) -> Option<String> {
    let path = text.rsplit(';').next()?.split(',').nth(1)?;
    let mut parts = Vec::new();
    for part in path.split(['.', '[', ']']) {
        let part = part.trim_matches(['\'', '"']);
        if !part.is_empty() {
            parts.push(part);
        }
    }
    let from = match &parts[..] {
        // A local variable of whoever calls.
        ["L", _, ..] => 2,
        ["self", ..] => 1,
        _ => 0,
    };
    Some(parts[from..].join(".")).filter(|path| !path.is_empty())
}

fn place(path: &str, line: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    format!("{file}:{line}")
}

/// Path and line of each frame that belongs to no generated code.
fn frames(trace: &str) -> Vec<(&str, &str)> {
    trace.lines().filter_map(frame).filter(|(path, _)| !path.starts_with('<')).collect()
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
    fn modules_have_the_paths_of_their_parameters() {
        let outer = "L__self__,,model.Model";
        let inner = "L__self___layers_3_mlp,L['self'].layers[3].mlp,model.Mlp";
        assert_eq!(module_path(outer), None);
        assert_eq!(module_path(&format!("{outer};{inner}")).as_deref(), Some("layers.3.mlp"));
        assert_eq!(module_path("a,L['fn'].0.up,m.Up").as_deref(), Some("0.up"));
        assert_eq!(module_path("a,layers.3.mlp,m.Mlp").as_deref(), Some("layers.3.mlp"));
        assert_eq!(module_path("a,self.heads['left'],m.Head").as_deref(), Some("heads.left"));
        assert_eq!(module_path("nothing"), None);
    }

    #[test]
    fn the_innermost_frame_of_the_user_wins() {
        let trace = "File \"/home/me/model.py\", line 12, in forward\n    return self.fc(x)\n  \
                     File \"/env/site-packages/torch/nn/modules/linear.py\", line 125, in forward\n    \
                     return F.linear(x)\n  File \"<eval_with_key>.2\", line 5, in forward";
        assert_eq!(source_line(trace).as_deref(), Some("model.py:12"));
        assert_eq!(source_lines(trace), ["model.py:12", "linear.py:125"]);
        assert_eq!(source_line("File \"torch/fx/x.py\", line 24, in f").as_deref(), Some("x.py:24"));
        assert_eq!(source_line("File \"<string>\", line 1, in f"), None);
        assert_eq!(source_line("no trace \u{e9} File \"a.py\", line x"), None);
    }
}
