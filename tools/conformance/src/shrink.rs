//! PURE. Shrinks a script whose answers differ.

use anyhow::Result;

/// Removes lines, as long as the answers to the shorter script still differ: first many lines at once, then single
/// lines. `first_differing` returns the position of the first of several candidates whose answers differ.
///
/// All candidates of a round are passed in one call, because starting the Go program takes longer than computing the answers.
pub(crate) fn shrink(
    mut script: Vec<String>,
    first_differing: impl Fn(&[Vec<String>]) -> Result<Option<usize>>,
) -> Result<Vec<String>> {
    let mut size = script.len().div_ceil(2);
    while size > 0 {
        let candidates: Vec<Vec<String>> = (0..script.len())
            .step_by(size)
            .map(|from| {
                let to = (from + size).min(script.len());
                [&script[..from], &script[to..]].concat()
            })
            .collect();
        match first_differing(&candidates)? {
            Some(at) => script = candidates[at].clone(),
            None => size /= 2,
        }
        size = size.min(script.len());
    }
    Ok(script)
}
