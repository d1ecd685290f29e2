//! Runs the committed corpora of the fuzz targets in ordinary tests, so that these tests find faults again that fuzzing has found before.

use std::fs;
use std::path::Path;

/// The minimum number of files in a corpus.
const LEAST: usize = 24;

/// Calls `run` with each file of the target's corpus. Prints the name of the file before the call, so if a call panics, the last printed name is the
/// name of its file.
///
/// # Panics
/// Panics if the corpus cannot be read or has too few files.
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
