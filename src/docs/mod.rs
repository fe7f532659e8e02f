#[doc = include_str!("design.md")]
pub mod design {}
