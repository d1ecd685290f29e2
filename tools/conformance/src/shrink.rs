//! PURE. Shrinks a script that shows a difference.

use anyhow::Result;

/// Removes lines as long as `first_differing` finds a candidate: first many lines at once, then single lines.
///
/// Candidates are passed together, because starting client-go costs more than answering them.
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
