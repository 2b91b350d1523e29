//! Compiles expressions of sizes with the C compiler of this machine and compares their values with those of `litz_sym`, near every limit of
//! integers of 32 and 64 bits.

#![allow(missing_docs, reason = "a test")]

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use litz_c::{Layout, Model, SUPPORT, write};
use litz_ir::Dtype;
use litz_ir::graph::{Device, TensorType};
use litz_ir::program::{Output, Param, Program, SlotData};
use litz_sym::{Expr, Range, Sym, parse};

const EXPRESSIONS: &[&str] = &[
    "4*s0*s1",
    "12288*s0 + 64*ceildiv(5*s0, 8)",
    "s0*s1 - s1*s1",
    "floordiv(s0 - 7, 3)",
    "mod(s0 - 7, 5)",
    "floordiv(s0, s1 - 2)",
    "mod(3 - s0, s1 - 2)",
    "min(s0, 4294967296)*max(s1, 2147483648)",
    "s0*s1*s2",
    "s2*(s0 - s1) - 9223372036854775807",
    "-9223372036854775807 + s1 - 1",
    "floordiv(3000000000*s2, 7)*2",
];

/// What each size is: around 2^31, 2^32 and the root of 2^63, and small ones.
const VALUES: &[i64] = &[
    0,
    1,
    2,
    3,
    8,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    3_037_000_500,
    1 << 40,
    i64::MAX,
];

/// The product of sizes that the program is called with has no elements: nothing of that size is allocated.
fn program(expr: Expr, ranges: [Range; 3]) -> Program {
    let mut program = Program::new("p", Device::Cpu);
    let names = ["s0", "s1", "s2"].map(Sym::new);
    for (sym, range) in names.into_iter().zip(ranges) {
        program.facts.declare(sym, range, None);
    }
    let mut sizes: Vec<Expr> = names.into_iter().map(Expr::sym).collect();
    sizes.push(Expr::zero());
    let ty = TensorType::strided(Dtype::U8, sizes, vec![Expr::one(); 4]);
    let data = SlotData { name: "x".to_owned(), dtype: Dtype::U8, extent: Expr::zero(), device: Device::Cpu };
    let slot = program.slots.push(data);
    program.params.push(Param { slot, ty, is_donated: false });
    program.outputs.push(Output::Int(expr));
    program
}

#[test]
fn expressions_of_c_have_the_values_of_litz_sym() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sizes");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let put =
        |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("the file can be written");
    SUPPORT.iter().for_each(|(name, text)| put(name, text));
    // Any sizes, and such that products cannot overflow, which are written with operators.
    let all = Range::new(0, i64::MAX);
    let kinds = [
        [all; 3],
        [Range::new(0, 65536); 3],
        [Range::new(0, 1 << 40), Range::new(0, 65536), Range::new(0, 8)],
    ];
    let layout = Layout { constants: Vec::new(), bytes: 64 };
    let (mut files, mut includes, mut body, mut expected) =
        (Vec::new(), String::new(), String::new(), Vec::new());
    for (kind, ranges) in kinds.into_iter().enumerate() {
        for (at, text) in EXPRESSIONS.iter().enumerate() {
            let name = format!("m{kind}_{at}");
            let expr = parse(text).expect("test text parses");
            let program = program(expr, ranges);
            let model = Model {
                name: &name,
                program: &program,
                kernels: &[],
                inputs: &[],
                outputs: &[],
                layout: &layout,
                weights_id: 0,
            };
            let source = write(&model).expect("there is nothing that C does not do");
            put(&format!("{name}.c"), &source.source);
            put(&format!("{name}.h"), &source.header);
            files.push(format!("{name}.c"));
            writeln!(includes, "#include \"{name}.h\"").expect("a string takes it");
            let allowed = |range: Range| VALUES.iter().copied().filter(move |&value| range.contains(value));
            for a in allowed(ranges[0]) {
                for b in allowed(ranges[1]) {
                    for c in allowed(ranges[2]) {
                        writeln!(body, "  {{&{name}, {{{a}, {b}, {c}, 0}}}},").expect("a string takes it");
                        let value = |sym: Sym| match sym.name() {
                            "s0" => Some(a),
                            "s1" => Some(b),
                            _ => Some(c),
                        };
                        let value = expr.eval(&value);
                        expected.push((name.clone(), [a, b, c], value));
                    }
                }
            }
        }
    }
    put(
        "main.c",
        &format!(
            "#include <inttypes.h>\n#include <stdio.h>\n{includes}\n\
             static const struct {{\n  const litz_interface *model;\n  int64_t sizes[4];\n}} calls[] = {{\n{body}}};\n\n\
             int main(void) {{\n  const int64_t strides[] = {{1, 1, 1, 1}};\n  \
               for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {{\n    \
                 litz_error error;\n    litz_value value = {{0}};\n    \
                 const litz_tensor x = {{NULL, LITZ_U8, 4, calls[i].sizes, strides}};\n    \
                 litz_model *model = calls[i].model->open(NULL, 1, &error);\n    \
                 if (calls[i].model->run(model, &x, 1, &value, 1, &error) == LITZ_OK) {{\n      \
                   printf(\"%\" PRId64 \"\\n\", value.integer);\n    }} else {{\n      printf(\"none\\n\");\n    }}\n    \
                 calls[i].model->close(model);\n  }}\n  return 0;\n}}\n"
        ),
    );
    let sources = SUPPORT.iter().map(|(name, _)| (*name).to_owned()).filter(|name| name.ends_with(".c"));
    let flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsanitize=undefined"];
    let built = Command::new("cc")
        .current_dir(&folder)
        .args(flags)
        .arg("-fno-sanitize-recover")
        .args(sources.chain(files).chain(["main.c".to_owned()]))
        .args(["-o", "sizes", "-lm", "-pthread"])
        .output()
        .expect("there is a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(folder.join("sizes")).output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let found = String::from_utf8(ran.stdout).expect("numbers are text");
    assert_eq!(found.lines().count(), expected.len());
    for (line, (name, sizes, value)) in found.lines().zip(expected) {
        let value = value.map_or("none".to_owned(), |value| value.to_string());
        assert_eq!(line, value, "{name} of {sizes:?}");
    }
}
