//! Names that compiled code may leave undefined to the C library's addresses: what LLVM calls of its
//! own accord (`memset`, `fmaf` where the CPU has none), and the scalar math routines.

/// Declares C functions and lists them by name.
macro_rules! c_functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        unsafe extern "C" {
            $(fn $name($(_: $argument),*) -> $result;)*
        }

        /// Address of a C library routine that compiled code may call, by its C name.
        pub fn c_library_symbol(name: &str) -> Option<usize> {
            match name {
                $(stringify!($name) => Some($name as *const () as usize),)*
                _ => None,
            }
        }

        /// The names that [`c_library_symbol`] knows.
        pub const C_LIBRARY_SYMBOLS: &[&str] = &[$(stringify!($name)),*];
    };
}

c_functions! {
    memcpy(*mut u8, *const u8, usize) -> *mut u8;
    memmove(*mut u8, *const u8, usize) -> *mut u8;
    memset(*mut u8, i32, usize) -> *mut u8;
    acos(f64) -> f64;
    acosf(f32) -> f32;
    acosh(f64) -> f64;
    acoshf(f32) -> f32;
    asin(f64) -> f64;
    asinf(f32) -> f32;
    asinh(f64) -> f64;
    asinhf(f32) -> f32;
    atan(f64) -> f64;
    atanf(f32) -> f32;
    atan2(f64, f64) -> f64;
    atan2f(f32, f32) -> f32;
    atanh(f64) -> f64;
    atanhf(f32) -> f32;
    ceil(f64) -> f64;
    ceilf(f32) -> f32;
    cos(f64) -> f64;
    cosf(f32) -> f32;
    cosh(f64) -> f64;
    coshf(f32) -> f32;
    erf(f64) -> f64;
    erff(f32) -> f32;
    erfc(f64) -> f64;
    erfcf(f32) -> f32;
    exp(f64) -> f64;
    expf(f32) -> f32;
    exp2(f64) -> f64;
    exp2f(f32) -> f32;
    expm1(f64) -> f64;
    expm1f(f32) -> f32;
    floor(f64) -> f64;
    floorf(f32) -> f32;
    fma(f64, f64, f64) -> f64;
    fmaf(f32, f32, f32) -> f32;
    fmod(f64, f64) -> f64;
    fmodf(f32, f32) -> f32;
    lgamma(f64) -> f64;
    lgammaf(f32) -> f32;
    log(f64) -> f64;
    logf(f32) -> f32;
    log10(f64) -> f64;
    log10f(f32) -> f32;
    log1p(f64) -> f64;
    log1pf(f32) -> f32;
    log2(f64) -> f64;
    log2f(f32) -> f32;
    nearbyint(f64) -> f64;
    nearbyintf(f32) -> f32;
    pow(f64, f64) -> f64;
    powf(f32, f32) -> f32;
    rint(f64) -> f64;
    rintf(f32) -> f32;
    round(f64) -> f64;
    roundf(f32) -> f32;
    roundeven(f64) -> f64;
    roundevenf(f32) -> f32;
    sin(f64) -> f64;
    sinf(f32) -> f32;
    sinh(f64) -> f64;
    sinhf(f32) -> f32;
    tan(f64) -> f64;
    tanf(f32) -> f32;
    tanh(f64) -> f64;
    tanhf(f32) -> f32;
    tgamma(f64) -> f64;
    tgammaf(f32) -> f32;
    trunc(f64) -> f64;
    truncf(f32) -> f32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reach_the_routines_they_name() {
        let address = c_library_symbol("ldexpf");
        assert_eq!(address, None);
        let address = c_library_symbol("atan2").expect("atan2 is in the table");
        // SAFETY: the address is that of C's `double atan2(double, double)`.
        let atan2: extern "C" fn(f64, f64) -> f64 = unsafe { std::mem::transmute(address) };
        assert_eq!(atan2(1.0, 0.0), std::f64::consts::FRAC_PI_2);
        assert!(C_LIBRARY_SYMBOLS.iter().all(|name| c_library_symbol(name).is_some_and(|it| it != 0)));
    }
}
