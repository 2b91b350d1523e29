//! Writes what a launch needs to know of each kernel: its code, how much memory it takes for granted, and its grid.

use litz_ir::kernel::Kernel;

use crate::expr::{Sizes, literal};
use crate::names::{Names, quoted};

/// Writes the description of a kernel, called `name`, whose code is the function `code`.
pub(crate) fn describe(kernel: &Kernel, name: &str, code: &str) -> String {
    let mut names = Names::new();
    let mut sizes = Sizes::new(&kernel.facts, "bad");
    let own: Vec<String> = kernel.sizes.iter().map(|sym| names.take(sym.name())).collect();
    for (&sym, name) in kernel.sizes.iter().zip(&own) {
        sizes.name(sym, name.clone());
    }
    let mut checks = String::new();
    for (&sym, name) in kernel.sizes.iter().zip(&own) {
        let range = kernel.facts.range_of(sym);
        let divisor = kernel.facts.divisor_of(sym);
        let mut wrong = Vec::new();
        wrong.extend((range.lo != i64::MIN).then(|| format!("{name} < {}", literal(range.lo))));
        wrong.extend((range.hi != i64::MAX).then(|| format!("{name} > {}", literal(range.hi))));
        wrong.extend((divisor != 1).then(|| format!("{name} % {} != 0", literal(divisor))));
        if !wrong.is_empty() {
            // The value is looked at, whatever else is.
            sizes.write(litz_sym::Expr::sym(sym));
            checks += &format!("  if ({}) {{\n    return false;\n  }}\n", wrong.join(" || "));
        }
    }
    for guard in kernel.facts.guards() {
        checks += &format!("  if (!({})) {{\n    return false;\n  }}\n", sizes.holds(&guard.clause));
    }
    let (points, scratch) = (sizes.write(kernel.points()), sizes.write(kernel.scratch_bytes()));
    let params = kernel.mems.values().take(kernel.params).enumerate();
    let fits: Vec<String> = params
        .map(|(at, mem)| {
            format!("litz_fits(bad, args[{at}], {}, {})", sizes.write(mem.span()), mem.dtype.size())
        })
        .collect();
    let mut text = String::new();
    let [plan, checks_name] = ["plan", "checks"].map(|kind| name.replacen("kernel", kind, 1));
    let count = kernel.checks.len();
    if count > 0 {
        let checks: Vec<String> =
            kernel.checks.iter().map(|check| format!("    {},\n", quoted(check))).collect();
        text += &format!("static const char *const {checks_name}[] = {{\n{}}};\n\n", checks.concat());
    }
    text += &format!(
        "static bool {plan}(const litz_memory *args, const int64_t *sizes, bool *bad, litz_grid *grid) {{\n"
    );
    for (at, (&sym, size)) in kernel.sizes.iter().zip(&own).enumerate() {
        if sizes.is_used(sym) {
            text += &format!("  const int64_t {size} = sizes[{at}];\n");
        }
    }
    if !kernel.sizes.iter().any(|&sym| sizes.is_used(sym)) {
        text += "  (void)sizes;\n";
    }
    if fits.is_empty() {
        text += "  (void)args;\n  (void)bad;\n";
    }
    let fits = if fits.is_empty() { "true".to_owned() } else { fits.join(" &&\n         ") };
    text += &checks;
    text += &format!("  grid->points = {points};\n  grid->scratch = {scratch};\n  return {fits};\n}}\n\n");
    let grain = literal(i64::try_from(kernel.grain).unwrap_or(i64::MAX).max(1));
    let (quoted_name, checks) = (quoted(&kernel.name), if count > 0 { checks_name } else { "NULL".into() });
    text += &format!(
        "static const litz_kernel {name} = {{{quoted_name}, {code}, {}, {grain}, {plan}, {checks}, {count}}};\n\n",
        kernel.params
    );
    text
}
