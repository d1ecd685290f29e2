//! Modules that the programs share.

pub mod draws;
pub mod heap;
