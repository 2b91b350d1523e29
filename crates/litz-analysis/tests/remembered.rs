//! Checks that what was proved of one kernel is taken for another only where it holds there.
//!
//! Each random program has several layers of two nests that share nothing with other layers, each in a kernel of its own. So each
//! kernel is as legal as it would be alone, where nothing was proved before.

use litz_analysis::legality;
use litz_ir::text;

/// Programs that are tried.
const PROGRAMS: usize = 300;
/// Layers of each: most have what another has, but for a little.
const LAYERS: usize = 6;

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// What a layer may be: of each list one.
const CHOICES: [&[&str]; 10] = [
    // Rows of the nests.
    &["8", "s0"],
    // Type and layout of the buffer between the nests.
    &["f32[R, 8]", "f32[R, 8]{8, 1}", "f32[R, 8]{16, 1}", "f32[R, 8]{4, 1}", "f32[R, 8]{1, 1}"],
    // The element that is stored, and the one that is loaded.
    &["i, j", "j, i", "i, -j + 7"],
    &["i, j", "j, i", "i, -j + 7", "i + 1, j", "0, j"],
    // Where it is loaded.
    &["", " if 1 <= i else 0.0", " if i < 1, 1 < i else 0.0", " if j < 1, 2 <= j else 0.0"],
    // The loops around both.
    &["for p in R", "for p in ceildiv(R, 4)", "for p in min(8, R)", "for p in 8", "for p in 7"],
    &["for q in 8", "for q in 4", "for q in min(8, R - p)", "for q in min(8, 16 - 8*p)"],
    // What gives the axes their values.
    &["i = p, j = q", "i = q, j = p", "i = floordiv(8*p + q, 8), j = mod(q, 8)", "i = p, j = 2*q"],
    // Whether these may be past the end.
    &["", " masked"],
    // Where both run.
    &["if 0 <= p", "if q < 4", "if 8*p + q < 4", "if p < 7"],
];

/// The number of a layer, and which of each list it has.
type Layer = (usize, [usize; 10]);

/// Buffers, nests and kernel of a layer.
fn layer((number, choice): &Layer) -> [String; 3] {
    let [rows, layout, stored, loaded, guard, outer, inner, bind, masked, cond] =
        std::array::from_fn(|at| CHOICES[at][choice[at]].replace('R', CHOICES[0][choice[0]]));
    let bufs = format!(
        "buf x{number}: f32[{rows}, 8] = input buf t{number}: {layout} buf y{number}: f32[{rows}, 8]\n"
    );
    let nests = format!(
        "nest a{number} [i in {rows}, j in 8] {{ %0: f32 = load x{number}[i, j] store t{number}[{stored}] = %0 }}
         nest b{number} [i in {rows}, j in 8] {{ %0: f32 = load t{number}[{loaded}]{guard} store y{number}[i, j] = %0 }}\n"
    );
    let leaves = ["a", "b"].map(|nest| format!("{nest}{number} [{bind}]{masked}"));
    let kernel =
        format!("kernel k{number} {{ {outer} {{ {inner} {{ {cond} {{ {} }} }} }} }}\n", leaves.join(" "));
    [bufs, nests, kernel]
}

/// What is wrong with a schedule of these layers.
fn problems(layers: &[Layer]) -> Vec<String> {
    let texts: Vec<[String; 3]> = layers.iter().map(layer).collect();
    let part = |at: usize| texts.iter().map(|text| text[at].as_str()).collect::<String>();
    let results: Vec<String> = layers.iter().map(|(number, _)| format!("y{number}")).collect();
    let loops = format!(
        "loops @l on cpu {{ sym s0 in [1, 64]\n{}{}return {} }}",
        part(0),
        part(1),
        results.join(", ")
    );
    let schedule = format!("schedule @l of @l for cpu(isa=avx2, threads=2) {{\n{}}}", part(2));
    let loops = text::loops::parse(&loops).unwrap_or_else(|diags| panic!("{}\n{loops}", diags[0]));
    let schedule =
        text::schedule::parse(&schedule).unwrap_or_else(|diags| panic!("{}\n{schedule}", diags[0]));
    let mut found: Vec<String> =
        legality::verify(&schedule, &loops).iter().map(ToString::to_string).collect();
    found.sort();
    found
}

#[test]
fn a_kernel_is_as_legal_as_it_is_alone() {
    let mut random = Random(1);
    let (mut legal, mut illegal) = (0, 0);
    for _ in 0..PROGRAMS {
        let mut choice = [0; 10];
        let mut layers: Vec<Layer> = Vec::new();
        for number in 0..LAYERS {
            // One that differs from another in little asks nearly the same.
            for _ in 0..random.below(3) {
                let at = random.below(CHOICES.len());
                choice[at] = random.below(CHOICES[at].len());
            }
            layers.push((number, choice));
            if random.below(3) == 0 {
                choice = layers[random.below(layers.len())].1;
            }
        }
        // Dependences are looked at where nothing else is wrong.
        let of_points = |problem: &String| !problem.contains("error[dependence]");
        let alone: Vec<(Layer, Vec<String>)> =
            layers.iter().map(|layer| (*layer, problems(&[*layer]))).collect();
        legal += alone.iter().filter(|(_, problems)| problems.is_empty()).count();
        illegal += alone.iter().filter(|(_, problems)| !problems.is_empty()).count();
        let mut taken_once = alone.clone();
        taken_once.retain(|(_, problems)| !problems.iter().any(of_points));
        for group in [alone, taken_once] {
            let (layers, expected): (Vec<Layer>, Vec<Vec<String>>) = group.into_iter().unzip();
            let mut expected = expected.concat();
            expected.sort();
            if expected.iter().any(of_points) {
                expected.retain(of_points);
            }
            assert_eq!(problems(&layers), expected, "{layers:?}");
        }
    }
    assert!(legal > PROGRAMS / 2 && illegal > PROGRAMS, "{legal} kernels are legal, {illegal} are not");
}
