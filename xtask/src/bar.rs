//! Writes a measured figure beside the one that it must reach.

/// One figure and its bar.
pub struct Bar {
    /// What it is a figure of.
    pub what: String,
    /// Nothing where it could not be measured.
    pub figure: Option<f64>,
    /// What it must reach.
    pub least: Option<f64>,
    /// How both are written.
    pub unit: Unit,
}

/// How figures are written.
#[derive(Clone, Copy)]
pub enum Unit {
    /// `1.35x`
    Times,
    /// `92.0 %`
    Percent,
}

impl Bar {
    /// The figure, what it must reach, and whether it does.
    pub fn line(&self) -> String {
        let write = |value: f64| match self.unit {
            Unit::Times => format!("{value:.2}x"),
            Unit::Percent => format!("{:.1} %", 100.0 * value),
        };
        let figure = self.figure.map_or("-".to_owned(), write);
        let Some(least) = self.least else { return format!("{:<44}{figure:>8}", self.what) };
        let verdict = if self.figure.is_some_and(|figure| figure >= least) { "ok" } else { "MISSED" };
        format!("{:<44}{figure:>8}  bar {:>7}  {verdict}", self.what, write(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_or_missed() {
        let bar = |figure| Bar { what: "x".into(), figure, least: Some(0.92), unit: Unit::Percent };
        assert!(bar(Some(0.93)).line().ends_with("93.0 %  bar  92.0 %  ok"));
        assert!(bar(Some(0.91)).line().ends_with("MISSED"));
        assert!(bar(None).line().ends_with("MISSED"));
    }
}
