//! What the programs here share.

pub mod draws;
pub mod heap;
