//! The report of a defect.

/// A defect, and the program that shows it, instantiated for kube-runtime and for flyball.
pub(crate) struct Defect {
    pub(crate) id: &'static str,
    pub(crate) is: &'static str,
    pub(crate) measured: &'static str,
    pub(crate) theirs: fn() -> Finding,
    pub(crate) ours: fn() -> Finding,
}

/// The result of a program.
pub(crate) struct Finding {
    pub(crate) figure: String,
    pub(crate) defective: bool,
}

impl Finding {
    pub(crate) fn new(figure: impl Into<String>, defective: bool) -> Self {
        Self { figure: figure.into(), defective }
    }
}

pub(crate) fn head() {
    println!("| | defect | measured | kube-runtime 5.0.0 | flyball-kube | |");
    println!("|---|---|---|---|---|---|");
}

impl Defect {
    /// Runs both programs and prints the row. Returns true if only kube-runtime has the defect.
    pub(crate) fn show(&self) -> bool {
        let (theirs, ours) = ((self.theirs)(), (self.ours)());
        let verdict = match (theirs.defective, ours.defective) {
            (true, false) => "shown, and not in flyball",
            (false, false) => "**not shown**",
            (_, true) => "**in ours, too**",
        };
        let Self { id, is, measured, .. } = self;
        println!("| {id} | {is} | {measured} | {} | {} | {verdict} |", theirs.figure, ours.figure);
        theirs.defective && !ours.defective
    }
}
