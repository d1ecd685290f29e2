//! Tests of the program's exit status, stdout and stderr.

mod bad_input;
mod interrupt;
mod output;
mod support;
