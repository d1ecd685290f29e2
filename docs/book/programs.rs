//! All programs of the book that are one file: `book-programs NAME` runs one. `build.rs` writes a module for each.

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

fn main() -> std::process::ExitCode {
    run(&std::env::args().nth(1).expect("the name of a program is the first argument"))
}

/// Runs the `main` of a program, whatever it returns.
fn status<T: std::process::Termination>(main: fn() -> T) -> std::process::ExitCode {
    main().report()
}
