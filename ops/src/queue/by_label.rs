//! PURE. One series for each value of a label.

/// One series of type `C` for each value of a label.
#[derive(Debug)]
pub(crate) struct ByLabel<W, C, const N: usize>([(W, &'static str, C); N]);

impl<W: Copy + PartialEq, C, const N: usize> ByLabel<W, C, N> {
    /// Creates the series. `values` lists all cases, each with the label value that stands for it.
    pub(crate) fn new(values: [(W, &'static str); N], mut make: impl FnMut(&'static str) -> C) -> Self {
        Self(values.map(|(case, value)| (case, value, make(value))))
    }

    /// Returns the series of a case; `None` for a case that a later version of flyball-workqueue has added.
    pub(crate) fn get(&self, case: W) -> Option<&C> {
        self.0.iter().find(|(own, ..)| *own == case).map(|(.., series)| series)
    }

    #[cfg(feature = "prometheus-client")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &C)> {
        self.0.iter().map(|(_, value, series)| (*value, series))
    }
}
