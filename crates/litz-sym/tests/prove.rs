//! Proofs that index expressions of real programs are inside, and that those one element too long are not.

use litz_sym::{Expr, Facts, Range, Rel, Sym, parse, parse_rel};

/// The sizes of accesses: any from 2 on, and those of programs that say how large sizes may be.
const SIZES: [Range; 2] = [Range { lo: 2, hi: i64::MAX }, Range { lo: 2, hi: 4096 }];

/// What an access stands among: sizes, guards on them, axes with extents, and conditions of the access.
struct Access {
    sizes: &'static [&'static str],
    guards: &'static [&'static str],
    axes: &'static [(&'static str, &'static str)],
    conditions: &'static [&'static str],
    index: &'static str,
    span: &'static str,
}

const ACCESSES: &[Access] = &[
    // Windows of three by three of images of 56 by 56 points with 64 channels, point by point for the rows of a tile, a window's point for each
    // step of a sum: at the step itself, and two steps ahead.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("e", "8"), ("g", "392"), ("k", "9"), ("t", "128"), ("c", "8")],
        conditions: &[
            "0 <= floordiv(k, 3) + mod(2*g + floordiv(128*e + 128*g + t, 448), 56) - 1",
            "floordiv(k, 3) + mod(2*g + floordiv(128*e + 128*g + t, 448), 56) - 1 < 56",
            "0 <= mod(16*e + 16*g + floordiv(t, 8), 56) + mod(k, 3) - 1",
            "mod(16*e + 16*g + floordiv(t, 8), 56) + mod(k, 3) - 1 < 56",
        ],
        index: "1024*e + c + 8192*g + 64*k + 8*t + 3392*floordiv(k, 3) - 3648",
        span: "3211264",
    },
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("e", "8"), ("g", "392"), ("k", "7"), ("t", "128"), ("c", "8")],
        conditions: &[
            "0 <= floordiv(k + 2, 3) + mod(2*g + floordiv(128*e + 128*g + t, 448), 56) - 1",
            "floordiv(k + 2, 3) + mod(2*g + floordiv(128*e + 128*g + t, 448), 56) - 1 < 56",
            "0 <= mod(16*e + 16*g + floordiv(t, 8), 56) + mod(k + 2, 3) - 1",
            "mod(16*e + 16*g + floordiv(t, 8), 56) + mod(k + 2, 3) - 1 < 56",
        ],
        index: "1024*e + c + 8192*g + 64*k + 8*t + 3392*floordiv(k + 2, 3) - 3520",
        span: "3211264",
    },
    // The same of 14 by 14 points with 256 channels, a quarter of these for each step.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("e", "8"), ("g", "25"), ("k", "34"), ("t", "128"), ("c", "8")],
        conditions: &[
            "0 <= floordiv(k + 2, 12) + mod(e + 9*g + floordiv(16*e + 16*g + t, 112), 14) - 1",
            "floordiv(k + 2, 12) + mod(e + 9*g + floordiv(16*e + 16*g + t, 112), 14) - 1 < 14",
            "0 <= mod(floordiv(k + 2, 4), 3) + mod(2*e + 2*g + floordiv(t, 8), 14) - 1",
            "mod(floordiv(k + 2, 4), 3) + mod(2*e + 2*g + floordiv(t, 8), 14) - 1 < 14",
            "16*e + 128*g + floordiv(t, 8) < 3136",
        ],
        index: "4096*e + c + 32768*g + 64*k + 8*t + 2816*floordiv(k + 2, 12) + 192*floordiv(t, 8) - 3712",
        span: "802816",
    },
    // Windows of 16 columns of an image, and heads of attention put together again.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("i", "32"), ("r", "64")],
        conditions: &[],
        index: "64*i + r + 240*floordiv(r, 16) - 48*mod(i, 16)",
        span: "2048",
    },
    // Windows of windows: a number of seven digits.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("i", "3136"), ("r", "96")],
        conditions: &[],
        index: "6144*i + r - 300672*floordiv(i, 49) + 20736*floordiv(i, 98) - 42816*floordiv(i, 196)
            + 10368*floordiv(i, 392) - 21408*floordiv(i, 784) + 5184*floordiv(i, 1568) - 5376*mod(i, 7)",
        span: "301056",
    },
    // Windows of an image that was rolled.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("i", "2"), ("j", "21"), ("k", "21"), ("l", "96")],
        conditions: &[],
        index: "42336*i + l - 1344*mod(j + 4, 7) + 2016*mod(j + 18, 21) - 576*mod(k + 4, 7) + 672*mod(k + 18, 21)",
        span: "84672",
    },
    // A padded image that lies in windows of 14 columns.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("j", "56"), ("k", "56"), ("r", "96"), ("r1", "3"), ("r2", "3")],
        conditions: &["0 <= j + r1 - 1", "j + r1 - 1 < 56", "0 <= k + r2 - 1", "k + r2 - 1 < 56"],
        index: "5376*j + 1344*k + r + 5376*r1 + 1344*r2 - 4032*mod(j + r1 + 13, 14) - 1248*mod(k + r2 + 13, 14) - 6720",
        span: "301056",
    },
    // Every other element, where only even positions exist.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("i", "192"), ("j", "28"), ("k", "28"), ("r0", "3"), ("r1", "3")],
        conditions: &[
            "0 <= j - r0 + 1",
            "j - r0 + 1 < 28",
            "mod(j - r0 + 1, 2) == 0",
            "0 <= k - r1 + 1",
            "k - r1 + 1 < 28",
            "mod(k - r1 + 1, 2) == 0",
        ],
        index: "i + 96*r0 + 32*r1 + 56416*floordiv(i, 32) + 4032*ceildiv(j - r0, 2) + 288*ceildiv(k - r1, 2)",
        span: "338688",
    },
    // An image that is reflected at its border.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("k", "6"), ("l", "8")],
        conditions: &[],
        index: "l - 8*max(-max(-k + 1, k - 1) + 3, max(-k + 1, k - 1) - 3) + 24",
        span: "32",
    },
    // Pooling of a convolution with stride 2, both of any size.
    Access {
        sizes: &["s0", "s1", "s2"],
        guards: &["s1 >= 5", "s2 >= 5"],
        axes: &[
            ("i", "s0"),
            ("j", "8"),
            ("k", "ceildiv(s1, 4) - 1"),
            ("l", "ceildiv(s2, 4) - 1"),
            ("r0", "3"),
            ("r1", "3"),
        ],
        conditions: &[],
        index: "8*i*ceildiv(s1, 2)*ceildiv(s2, 2) + j + 16*k*ceildiv(s2, 2) + 16*l + 8*r0*ceildiv(s2, 2) + 8*r1",
        span: "8*s0*ceildiv(s1, 2)*ceildiv(s2, 2)",
    },
    // Adaptive pooling: pieces that differ in length.
    Access {
        sizes: &["s0", "s1", "s2"],
        guards: &[],
        axes: &[("i", "s0"), ("j", "5"), ("k", "s2"), ("r", "ceildiv(s1, 5) + 1")],
        conditions: &["r + floordiv(j*s1, 5) < ceildiv(j*s1 + s1, 5)"],
        index: "i*s1*s2 + k + r*s2 + s2*floordiv(j*s1, 5)",
        span: "s0*s1*s2",
    },
    // A transposed convolution with stride 2 of an image of any size.
    Access {
        sizes: &["s0", "s1", "s2", "s3", "s4"],
        guards: &[],
        axes: &[("j", "s3 + 2*s1 - 5"), ("k", "2*s2 + s4 - 5"), ("r0", "s0"), ("r1", "s3"), ("r2", "s4")],
        conditions: &[
            "0 <= j - r1 + 2",
            "j - r1 + 2 < 2*s1",
            "mod(j - r1, 2) == 0",
            "0 <= k - r2 + 2",
            "k - r2 + 2 < 2*s2",
            "mod(k - r2, 2) == 0",
        ],
        index: "r0 + s0*s2*floordiv(j - r1, 2) + s0*s2 + s0*floordiv(k - r2, 2) + s0",
        span: "s0*s1*s2",
    },
    // A diagonal, and one of three parts whose sizes add up to 9.
    Access {
        sizes: &["s0", "s1"],
        guards: &[],
        axes: &[("i", "min(s0, s1)")],
        conditions: &[],
        index: "i*s1 + i",
        span: "s0*s1",
    },
    Access {
        sizes: &["s0", "s1", "s2", "s3", "s4"],
        guards: &["s2 <= 5", "s3 <= 5", "s4 <= 5", "s2 + s3 + s4 == 9"],
        axes: &[("i", "s0"), ("j", "s1"), ("k", "s4")],
        conditions: &[],
        index: "i*s1*s4 + j*s4 + k",
        span: "s0*s1*s4",
    },
    // Panels of eight columns, packed again in panels of 32.
    Access {
        sizes: &["t"],
        guards: &[],
        axes: &[("h", "2"), ("jo", "ceildiv(t, 32)"), ("d", "4"), ("ji", "32")],
        conditions: &["ji + 32*jo < t"],
        index: "8*d + 32*h*ceildiv(t, 8) + ji + 128*jo + 24*floordiv(ji, 8)",
        span: "64*ceildiv(t, 8)",
    },
    // Query heads that share key heads.
    Access {
        sizes: &["s0", "s1", "s2", "s3"],
        guards: &["mod(s0, s2) == 0"],
        axes: &[("i", "s0"), ("k", "s3"), ("r", "s1")],
        conditions: &[],
        index: "k*s1 + r + s1*s3*floordiv(i, floordiv(s0, s2))",
        span: "s1*s2*s3",
    },
    // Rows that two threads share six at a time, packed by sixteen: the last rows are left to another loop.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("io", "2"), ("im", "11"), ("ii", "6"), ("jo", "48"), ("ji", "16")],
        conditions: &["6 <= 128 - 6*im - 66*io"],
        index: "ii + 6*im + 4098*io + 16*ji + 2048*jo + 1008*floordiv(ii + 6*im + 2*io, 16) - 1792*mod(jo, 4)",
        span: "98302",
    },
    // The diagonal below the main one of rows that two columns were added to.
    Access {
        sizes: &["s0"],
        guards: &["s0 <= 64", "s0 >= 3"],
        axes: &[("i", "min(s0 - 1, 9)")],
        conditions: &["i < 7"],
        index: "8*i + 7",
        span: "7*s0",
    },
    // A flat index of 14 by 14 rows of 152, from the parts of 4096 that threads take.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("b", "512"), ("v", "4096")],
        conditions: &["v < 2097100 - 4096*b"],
        index: "2128*b + 2128*floordiv(1968*b + v, 2128) + 152*mod(12*b + floordiv(144*b + v, 152), 14) \
                + mod(144*b + v, 152)",
        span: "2097100",
    },
    // Statistics of windows that are shifted by half a window.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("io", "11"), ("ii", "6"), ("ji", "16")],
        conditions: &["6 <= 64 - 6*io"],
        index: "96*ji + ii + mod(ii + 2*io, 4) - mod(ii + 6*io, 8) + 4*mod(io + floordiv(ii + 2*io, 4), 2)",
        span: "1446",
    },
    // A window of three by three that slides over an image whose border is another loop's.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("m0", "14"), ("io", "2"), ("im", "5"), ("ii", "6"), ("k0", "3"), ("k1", "3"), ("k2", "96")],
        conditions: &["1 <= k0 + m0", "1 <= ii + 6*im + 30*io + k1", "ii + 6*im + 30*io + k1 <= 56"],
        index: "1344*ii + 8064*im + 40320*io + 5376*k0 + 1344*k1 + k2 + 5376*m0 \
                - 1248*mod(ii + 6*im + 2*io + k1 + 13, 14) - 4032*mod(k0 + m0 + 13, 14) - 6720",
        span: "133056",
    },
    // Every third element of a diagonal, which may be shorter than where they begin.
    Access {
        sizes: &["s0"],
        guards: &["s0 <= 64"],
        axes: &[("i", "ceildiv(max(min(s0 - 3, 13), 0) - min(max(min(s0 - 3, 13), 0), 1), 3)")],
        conditions: &[],
        index: "42*i + 14*min(max(min(s0 - 3, 13), 0), 1)",
        span: "14*max(min(s0 - 3, 13), 0) - 13",
    },
    // An image whose rows, of any number, are blended to four.
    Access {
        sizes: &["s0"],
        guards: &[],
        axes: &[("i", "3"), ("k", "4"), ("l", "6")],
        conditions: &[],
        index: "16*i*s0 + 2*l + 16*floordiv(max(2*k*s0 + s0 - 4, 0), 8) + ceildiv(2*l, 3) + 1",
        span: "48*s0",
    },
    // A pooled square image.
    Access {
        sizes: &["s0"],
        guards: &["s0 >= 3"],
        axes: &[("i", "4"), ("j", "s0 - 2"), ("k", "s0 - 1")],
        conditions: &[],
        index: "i*s0*s0 - 3*i*s0 + 2*i + j*s0 - j + k",
        span: "4*s0*s0 - 12*s0 + 8",
    },
    Access {
        sizes: &["s0"],
        guards: &["s0 >= 3"],
        axes: &[("i", "2"), ("j", "2"), ("k", "s0 - 2"), ("l", "s0 - 2")],
        conditions: &[],
        index: "2*i*s0*s0 - 8*i*s0 + 8*i + j*s0*s0 - 4*j*s0 + 4*j + k*s0 - 2*k + l",
        span: "4*s0*s0 - 16*s0 + 16",
    },
    // The diagonal of a matrix that was transposed, next to the main one.
    Access {
        sizes: &["s0"],
        guards: &[],
        axes: &[("i", "min(s0 - 1, 12)")],
        conditions: &[],
        index: "13*i + 12",
        span: "12*s0",
    },
    // Images with a row before and a column after, as a vector.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("i", "306")],
        conditions: &[
            "mod(floordiv(i, 17), 9) - 1 < 8",
            "0 <= mod(floordiv(i, 17), 9) - 1",
            "mod(i, 17) < 16",
        ],
        index: "i - floordiv(i, 17) - 16*floordiv(i, 153) - 16",
        span: "256",
    },
    // Rows of an image that something was cut from at both ends.
    Access {
        sizes: &["s0", "s1"],
        guards: &["s0 <= 64", "s1 <= 64"],
        axes: &[("i", "2"), ("j", "max(-max(s1 - 5, 0) + max(s1 - 3, 0), 0)"), ("k", "s0")],
        conditions: &[],
        index: "i*s0*max(-max(s1 - 5, 0) + max(s1 - 3, 0), 0) + j*s0 + k",
        span: "2*s0*max(-max(s1 - 5, 0) + max(s1 - 3, 0), 0)",
    },
    // The diagonal of pooled rows, of which there are two.
    Access {
        sizes: &["s0"],
        guards: &["s0 >= 3"],
        axes: &[("i", "min(s0 - 2, 2)")],
        conditions: &[],
        index: "i*s0 - i",
        span: "2*s0 - 4",
    },
    // Transposed square matrices as a vector.
    Access {
        sizes: &["s0"],
        guards: &[],
        axes: &[("i", "7*s0*s0")],
        conditions: &[],
        index: "s0*s0*floordiv(i, s0*s0) + s0*mod(i, s0) + mod(floordiv(i, s0), s0)",
        span: "7*s0*s0",
    },
    // Matrices whose rows lie apart, as a vector, and that rolled.
    Access {
        sizes: &["s0", "s1"],
        guards: &[],
        axes: &[("i", "6*s0*s1")],
        conditions: &[],
        index: "s1*floordiv(i, s0*s1) + 6*s1*mod(floordiv(i, s1), s0) + mod(i, s1)",
        span: "6*s0*s1",
    },
    Access {
        sizes: &["s0", "s1"],
        guards: &[],
        axes: &[("i", "6*s0*s1")],
        conditions: &[],
        index: "s1*floordiv(mod(i - 5, 6*s0*s1), s0*s1) + 6*mod(i - 5, s0*s1) - 5*mod(i - 5, s1)",
        span: "6*s0*s1",
    },
    // An element of a product's tile: its row and its column are inside by guards, and lanes of warps have both.
    Access {
        sizes: &[],
        guards: &[],
        axes: &[("g", "4"), ("w", "4"), ("l", "32"), ("u", "2"), ("v", "4"), ("r", "2"), ("c", "2")],
        conditions: &[
            "64*g + 8*r + 16*u + floordiv(l, 4) + 32*floordiv(w, 2) < 196",
            "c + 8*v + 2*mod(l, 4) + 32*mod(w, 2) < 49",
        ],
        index: "3136*g + 392*r + 784*u + 49*floordiv(l, 4) + 1568*floordiv(w, 2) \
                + c + 8*v + 2*mod(l, 4) + 32*mod(w, 2)",
        span: "9604",
    },
    // Rows of a matrix whose columns are copied backwards, sixteen at a time: the first copies of a pipelined loop, and the others.
    Access {
        sizes: &["n", "p"],
        guards: &[],
        axes: &[("io", "ceildiv(n, 16)"), ("k", "2"), ("t", "64"), ("e", "4")],
        conditions: &[
            "k < ceildiv(p, 16)",
            "4*e + 16*io + floordiv(t, 16) < n",
            "-16*k + 16*ceildiv(p, 16) + mod(t, 16) - 16 < p",
        ],
        index: "4*e*p + 16*io*p - 16*k + p*floordiv(t, 16) + 16*ceildiv(p, 16) + mod(t, 16) - 16",
        span: "n*p",
    },
    Access {
        sizes: &["n", "p"],
        guards: &[],
        axes: &[("io", "ceildiv(n, 16)"), ("k", "ceildiv(p, 16)"), ("t", "64"), ("e", "4")],
        conditions: &[
            "k + 2 < ceildiv(p, 16)",
            "4*e + 16*io + floordiv(t, 16) < n",
            "-16*k + 16*ceildiv(p, 16) + mod(t, 16) - 48 < p",
        ],
        index: "4*e*p + 16*io*p - 16*k + p*floordiv(t, 16) + 16*ceildiv(p, 16) + mod(t, 16) - 48",
        // The last column is one of the third step from behind.
        span: "n*p - 17",
    },
    // Tiles of matrices of 2*s rows and 2*s - 1 columns, side by side.
    Access {
        sizes: &["s"],
        guards: &[],
        axes: &[
            ("g", "3"),
            ("io", "ceildiv(2*s, 16)"),
            ("k", "ceildiv(2*s - 1, 16)"),
            ("t", "128"),
            ("e", "2"),
        ],
        conditions: &["8*e + 16*io + floordiv(t, 16) < 2*s", "16*k + mod(t, 16) < 2*s - 1"],
        index: "16*e*s - 8*e + 4*g*s*s - 2*g*s + 32*io*s - 16*io + 16*k + 2*s*floordiv(t, 16) + t - 17*floordiv(t, 16)",
        span: "12*s*s - 6*s",
    },
];

fn read(text: &str) -> Expr {
    parse(text).expect("test text parses")
}

impl Access {
    fn facts(&self, sizes: Range) -> Facts {
        let mut facts = Facts::new();
        for size in self.sizes {
            facts.declare(Sym::new(size), sizes, None);
        }
        for guard in self.guards {
            facts.require(parse_rel(guard).expect("test text parses"), "test").expect("possible");
        }
        for (_, extent) in self.axes {
            assert!(facts.assume(Rel::le(1, read(extent))), "{}", self.index);
        }
        for (axis, extent) in self.axes {
            facts.declare_index(Sym::new(axis), read(extent));
        }
        for condition in self.conditions {
            assert!(facts.assume(parse_rel(condition).expect("test text parses")), "{condition}");
        }
        facts
    }
}

#[test]
fn accesses_are_inside() {
    for (access, sizes) in ACCESSES.iter().flat_map(|access| SIZES.map(|sizes| (access, sizes))) {
        let (facts, index) = (access.facts(sizes), read(access.index));
        assert!(facts.proves(&Rel::le(0, index)), "0 <= {index}");
        assert!(facts.proves(&Rel::lt(index, read(access.span))), "{index} < {}", access.span);
    }
}

#[test]
fn accesses_one_element_too_far_are_not() {
    for (access, sizes) in ACCESSES.iter().flat_map(|access| SIZES.map(|sizes| (access, sizes))) {
        let (facts, index) = (access.facts(sizes), read(access.index));
        assert!(!facts.proves(&Rel::lt(index, read(access.span) - 1)), "{index} < {} - 1", access.span);
    }
}

#[test]
fn the_largest_index_is_that_of_the_last_point() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s0"), Range::at_least(1), None);
    facts.declare_index(Sym::new("i"), read("s0"));
    facts.declare_index(Sym::new("j"), read("4"));
    let axes = ["i", "j"].map(Sym::new);
    for (index, largest) in [
        ("4*i + j", "4*s0 - 1"),
        ("j - s0", "3 - s0"),
        ("j - 4*i", "3"),
        ("floordiv(i, 2) - j", "floordiv(s0 - 1, 2)"),
        ("min(i, 2*j) + x", "min(s0 - 1, 6) + x"),
        ("mod(i, 3)", "mod(i, 3)"),
    ] {
        assert_eq!(facts.largest(read(index), &axes), read(largest), "{index}");
    }
}

#[test]
fn assumptions_are_no_guards() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s0"), Range::at_least(0), None);
    assert!(facts.assume(Rel::le(1, read("s0*s0"))));
    assert!(facts.guards().is_empty());
    assert!(facts.proves(&Rel::le(1, read("s0"))));
    assert!(facts.assume(Rel::le(4, read("floordiv(s0, 3)"))));
    assert!(facts.proves(&Rel::le(12, read("s0"))));
    assert!(!facts.assume(Rel::le(read("s0"), 11)));
}

/// Tiles of a second part of a grid, which begins behind all tiles of the first one: `32*z - 32*ceildiv(s, 32)` are its rows.
#[test]
fn guards_with_remainders_prove_what_has_quotients() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s"), Range::new(1, 64), None);
    for (index, extent) in [("z", "2*ceildiv(s, 32)"), ("r", "8"), ("k", "2"), ("c", "16")] {
        facts.declare_index(Sym::new(index), read(extent));
    }
    let rows = "32*z + r - 32*ceildiv(s, 32)";
    let first = Rel::le(read("ceildiv(s, 32)"), read("z"));
    let guards = [first, Rel::lt(read(rows), read("s")), Rel::lt(read("16*k + c"), read("s"))];
    assert!(guards.iter().all(|&guard| facts.assume(guard)));
    let index = read(rows) * read("s") + read("16*k + c");
    assert!(facts.proves(&Rel::le(0, index)) && facts.proves(&Rel::lt(index, read("s*s"))));
    assert!(!facts.proves(&Rel::lt(index, read("s*s - 1"))));
}

/// Of windows of a grid of 7 by 7, blocks of 8 rows: of an index of them exactly the least and the largest value are proved.
#[test]
fn indices_of_whole_rows_are_bounded_as_points_are() {
    let mut facts = Facts::new();
    for (index, extent) in [("g", "64"), ("b", "7"), ("row", "min(49 - 8*b, 8)"), ("t", "64")] {
        facts.declare_index(Sym::new(index), read(extent));
    }
    let index = read(
        "t + 56*g + 29120*b + 3584*row + 448*floordiv(b + row, 7) \
         + 21952*floordiv(8*b + row + 7*floordiv(g, 8), 49) + 392*mod(g, 8) - 384*mod(b + row + mod(g, 8), 7)",
    );
    let mut values = Vec::new();
    for (g, b) in (0..64).flat_map(|g| (0..7).map(move |b| (g, b))) {
        for (row, t) in (0..i64::min(49 - 8 * b, 8)).flat_map(|row| [(row, 0), (row, 63)]) {
            let value = |sym: Sym| match sym.name() {
                "g" => Some(g),
                "b" => Some(b),
                "row" => Some(row),
                _ => Some(t),
            };
            values.extend(index.eval(&value));
        }
    }
    let [lowest, largest] = [values.iter().min(), values.iter().max()].map(|end| *end.expect("points"));
    let whole = facts.with_whole_row(Sym::new("row")).expect("a row");
    assert!(whole.proves(&Rel::le(lowest, index)) && whole.proves(&Rel::le(index, largest)));
    assert!(!whole.proves(&Rel::lt(lowest, index)) && !whole.proves(&Rel::lt(index, largest)));
    assert!(facts.with_whole_row(Sym::new("g")).is_none(), "all blocks are as long as each other");
}
