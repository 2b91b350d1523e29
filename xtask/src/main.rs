//! Project tasks: `cargo xtask demo`, `test`, `bless`, `corpus`, `bench-models`, `bench-kernels`, `tidy`.
fn main() {}
