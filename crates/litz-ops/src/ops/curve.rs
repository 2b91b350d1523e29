//! Computes the weights with which interpolation takes the elements around a position.

use crate::body::Body;
use litz_ir::loops::Val;

/// How neighbours are weighted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// Between the two next to the place.
    Linear,
    /// By convolution with a cubic curve: two on each side.
    Cubic,
}

/// Weights of the neighbours of a place at `t` of the way from one element to the next: of these two, and of one
/// more on both sides for cubic convolution with parameter -0.75.
pub fn curve_weights(b: &mut Body<'_>, t: Val, curve: Curve) -> Vec<Val> {
    let one = b.lit(t, 1.0);
    let back = b.sub(one, t);
    if curve == Curve::Linear {
        return vec![back, t];
    }
    let (beyond, ahead) = (b.add(t, one), b.add(back, one));
    vec![
        cubic_far(b, beyond, -0.75),
        cubic_near(b, t, -0.75),
        cubic_near(b, back, -0.75),
        cubic_far(b, ahead, -0.75),
    ]
}

/// `((a + 2) * t - (a + 3)) * t * t + 1`, the weight at distance `t` up to 1.
pub fn cubic_near(b: &mut Body<'_>, t: Val, a: f64) -> Val {
    polynomial(b, t, &[a + 2.0, -(a + 3.0), 0.0, 1.0])
}

/// `((a * t - 5 * a) * t + 8 * a) * t - 4 * a`, the weight at distance `t` from 1 to 2.
pub fn cubic_far(b: &mut Body<'_>, t: Val, a: f64) -> Val {
    polynomial(b, t, &[a, -5.0 * a, 8.0 * a, -4.0 * a])
}

fn polynomial(b: &mut Body<'_>, t: Val, coefficients: &[f64; 4]) -> Val {
    let mut sum = b.lit(t, coefficients[0]);
    for &c in &coefficients[1..] {
        sum = b.mul(sum, t);
        if c != 0.0 {
            let c = b.lit(t, c);
            sum = b.add(sum, c);
        }
    }
    sum
}

/// Distance, in elements of the coarser side, beyond which nothing has weight.
pub fn reach(curve: Curve) -> i64 {
    match curve {
        Curve::Linear => 1,
        Curve::Cubic => 2,
    }
}
