//! The committed corpora of the fuzz targets, as ordinary tests replay them: what fuzzing has found stays found.

use std::fs;
use std::path::Path;

/// No corpus is smaller.
const LEAST: usize = 24;

/// Runs each file of the target's corpus, and names it: so the last name is that of the file that fails.
///
/// # Panics
/// When the corpus cannot be read, or is too small to be one.
pub fn replay(target: &str, mut run: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut replayed = 0;
    for file in files {
        let path = file.expect("a readable folder").path();
        println!("{}", path.display());
        run(&fs::read(&path).expect("a readable file"));
        replayed += 1;
    }
    assert!(replayed >= LEAST, "{target}: only {replayed} files");
}
