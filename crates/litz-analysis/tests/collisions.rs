//! Checks along which axes points of a nest may store to one element: every index of a table, with results found by hand.

use litz_analysis::collisions::colliding_axes;
use litz_ir::loops::Stmt;
use litz_ir::text;

/// The colliding axes of a nest with these axes and these indices of stores to one buffer. Symbols `t` and `u` are bound to
/// values below 64.
fn colliding(axes: &str, indices: &[&str]) -> String {
    let stores: String = indices.iter().map(|index| format!("    store y[{index}] = %1\n")).collect();
    let text = format!(
        "loops @l on cpu {{
  sym s0 in [0, 1024]
  sym s1 in [1, 1024]
  sym s2 in [2, 5]
  guard s2 == 5 for \"a test\"
  buf p: i64[1] = input
  buf y: f32[1073741824]
  nest n [{axes}] {{
    %0: i64 = load p[0]
    %1: f32 = const 0.0
    bind t = %0 in 64
    bind u = %0 in 64
{stores}  }}
  return y
}}"
    );
    let loops = text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
    let [Stmt::Nest(nest)] = &loops.stmts[..] else { panic!("expected a nest") };
    let axes = colliding_axes(&loops, nest);
    axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_axis_collides_unless_the_index_determines_it() {
    for (axes, index, expected) in [
        // All digits have room.
        ("i in 4, j in 8", "8*i + j", ""),
        ("i in 4, j in 8", "i + 4*j", ""),
        ("i in 4, j in 8", "100 - 8*i - j", ""),
        ("i in 4, j in 8", "20*i + 2*j + 5", ""),
        ("i in 5, j in 3, k in 2", "100*i + 30*j + 7*k", ""),
        // Rows of a padded image, counted by one axis, and with a remainder that runs backwards.
        ("m in 200704, j in 16", "j + 16*m + 32*floordiv(m, 112) + 3648*floordiv(m, 12544) + 1840", ""),
        ("m in 3136, j in 672", "768*m + j + 21504*floordiv(m, 196) - 96*mod(m, 14) + 11424", ""),
        ("m in 12", "mod(m, 4) + 4*floordiv(m, 4)", ""),
        // Rows that overlap, and a digit that the index lacks.
        ("m in 12", "mod(m, 4) + 3*floordiv(m, 4)", "m"),
        ("m in 12", "mod(m, 4)", "m"),
        ("m in 12, j in 2", "2*floordiv(m, 4) + j", "m"),
        ("m in 4", "mod(m, 4)", ""),
        // An axis that the index lacks, or whose digits overlap.
        ("i in 4, j in 8", "j", "i"),
        ("i in 4, j in 8", "7*i + j", "i j"),
        ("i in 4, j in 8", "8*i + 8*j", "i j"),
        ("i in 4, j in 8, k in 3", "8*i + 8*j + k", "i j"),
        ("i in 4, j in 8, k in 9", "8*i + 8*j + k", "i j k"),
        ("i in 1, j in 8", "j", ""),
        // Symbols bound to values may be equal at any two points.
        ("i in 4", "t", "i"),
        ("i in 4, j in 8", "8*t + j", "i"),
        ("i in 4, j in 9", "8*t + j", "i j"),
        ("i in 4, j in 8", "64*j + t", "i"),
        ("i in 4, j in 8", "63*j + t", "i j"),
        ("i in 4, j in 8, k in 2", "4608*j + 64*t + 8*u + k", "i"),
        ("i in 4, j in 8, k in 2", "4096*j + 64*t + 8*u + k", "i j"),
        ("i in 4, j in 8, k in 2", "4095*j + 64*t + u + 64*k", "i j k"),
        // Sizes.
        ("i in s0, j in s1", "s1*i + j", ""),
        ("i in s0, j in s1", "i + s0*j", ""),
        ("i in s0, j in s1", "s0*i + j", "i j"),
        ("i in s0, j in s1, k in 3", "3*s1*i + 3*j + k", ""),
        ("i in s0, j in s1", "s1*t + j", "i"),
        ("i in s0, j in s1, k in 2", "64*s1*i + s1*t + j", "k"),
        // What is no sum determines nothing, and reaches as far as its range.
        ("i in 4, j in 8", "8*i + mod(j, 3)", "j"),
        ("i in 4, j in 8", "2*i + mod(j, 3)", "i j"),
        ("i in 2, j in 8", "8*mod(i + 5, 6) + j", ""),
        ("i in 7, j in 8", "8*mod(i + 5, 6) + j", "i"),
        ("i in 2, j in s0, k in 3", "3*s0*mod(i - 1, s1 + 2) + 3*j + k", ""),
        ("i in s0, j in 2, k in s1 + 2", "i*(s1 + 2)*(s0 + 2) + (s1 + 2)*mod(j - 1, s0 + 2) + k", ""),
        ("i in 6, j in 8, k in 3", "100*k + 16*mod(5 - i, 6) + j", ""),
        ("i in 0, j in 8", "i", ""),
        ("i in s0, j in ceildiv(s2, 5), k in s1", "i*s1 + j*s1 + k", ""),
        ("i in 4, j in 1, k in 8", "8*i + 8*j + k", ""),
        (
            "i in 3, j in 4, k in ceildiv(s0, 16), l in 16",
            "64*i*ceildiv(s0, 16) + 16*j*ceildiv(s0, 16) + 16*k + l",
            "",
        ),
        ("i in 4, j in 64", "16*floordiv(j, 8) + 256*i + mod(j, 8)", ""),
        ("i in 4, j in 64", "16*floordiv(j, 8) + 119*i + mod(j, 8)", "i j"),
    ] {
        assert_eq!(colliding(axes, &[index]), expected, "[{axes}] y[{index}]");
    }
}

#[test]
fn stores_to_one_buffer_may_meet_each_other() {
    for (axes, indices, expected) in [
        ("i in 8", ["2*i", "2*i + 1"], ""),
        ("i in 8", ["i", "i + 8"], ""),
        ("i in 8", ["i", "i + 7"], "i"),
        ("i in s0", ["i", "i + s0"], ""),
        ("i in 8", ["i", "2*i"], "i"),
        ("i in 8", ["i", "i"], ""),
    ] {
        assert_eq!(colliding(axes, &indices), expected, "[{axes}] {indices:?}");
    }
}

/// Of random small indices, no two points that differ along axes which are determined store to one element.
#[test]
fn determined_axes_keep_points_apart() {
    let mut state = 1u64;
    let mut below = |limit: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % limit
    };
    for _ in 0..500 {
        let extents = [1 + below(4), 1 + below(4), 1 + below(4)];
        let steps = [below(13) - 4, below(13) - 4, below(13) - 4];
        let [i, j, k] = extents;
        let index = format!("64 + {}*i + {}*j + {}*k", steps[0], steps[1], steps[2]);
        let found = colliding(&format!("i in {i}, j in {j}, k in {k}"), &[&index]);
        let points: Vec<[i64; 3]> =
            (0..i).flat_map(|a| (0..j).flat_map(move |b| (0..k).map(move |c| [a, b, c]))).collect();
        let element = |point: &[i64; 3]| point.iter().zip(&steps).map(|(x, step)| x * step).sum::<i64>();
        for one in &points {
            for other in points.iter().filter(|other| element(one) == element(other)) {
                for (axis, name) in ["i", "j", "k"].iter().enumerate() {
                    let is_determined = !found.split(' ').any(|colliding| colliding == *name);
                    let is_same = one[axis] == other[axis];
                    assert!(is_same || !is_determined, "{index} over {extents:?}: {one:?} meets {other:?}");
                }
            }
        }
    }
}
