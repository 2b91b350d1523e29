//! Finds LLVM 22 and links the parts that turn IR text into object code, statically.

use std::path::Path;
use std::process::{Command, exit};

/// What `litz_llvm::llvm` uses: reading IR text, and code generation for each target.
/// The optimiser's pass pipelines are not among them, which keeps a release binary small.
const COMPONENTS: &[&str] = &["irreader", "x86codegen", "x86asmparser", "aarch64codegen", "nvptxcodegen"];

/// Libraries LLVM itself needs, linked statically so that a release runs anywhere glibc does.
const SYSTEM_LIBRARIES: &[&str] = &["stdc++", "z", "zstd"];

const HELP: &str = "install it with `apt-get install llvm-22-dev libzstd-dev zlib1g-dev` \
                    or point LLVM_SYS_221_PREFIX at an installation of LLVM 22";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LLVM_SYS_221_PREFIX");
    let config = find_llvm_config();

    println!("cargo:rustc-link-search=native={}", llvm_config(&config, &["--libdir"]));
    let mut arguments = vec!["--link-static", "--libnames"];
    arguments.extend(COMPONENTS);
    for file in llvm_config(&config, &arguments).split_whitespace() {
        let name = file.strip_prefix("lib").and_then(|name| name.strip_suffix(".a"));
        println!("cargo:rustc-link-lib=static:-bundle={}", name.unwrap_or(file));
    }
    for name in SYSTEM_LIBRARIES {
        match static_library_dir(name) {
            Some(dir) => {
                println!("cargo:rustc-link-search=native={dir}");
                println!("cargo:rustc-link-lib=static:-bundle={name}");
            }
            None => println!("cargo:rustc-link-lib={name}"),
        }
    }
    println!("cargo:rustc-link-lib=m");
}

/// The first `llvm-config` of version 22: on the path, else under the prefix.
fn find_llvm_config() -> String {
    let mut candidates = vec!["llvm-config-22".to_string()];
    if let Ok(prefix) = std::env::var("LLVM_SYS_221_PREFIX") {
        candidates.push(format!("{prefix}/bin/llvm-config"));
    }
    for candidate in &candidates {
        if output_of(candidate, &["--version"]).is_ok_and(|version| version.starts_with("22.")) {
            return candidate.clone();
        }
    }
    fail(&format!("LLVM 22 not found (tried {}): {HELP}", candidates.join(", ")))
}

fn llvm_config(config: &str, arguments: &[&str]) -> String {
    output_of(config, arguments).unwrap_or_else(|message| fail(&format!("{message}: {HELP}")))
}

/// The folder of `lib<name>.a` as the C compiler that links the program sees it.
fn static_library_dir(name: &str) -> Option<String> {
    let file = output_of("cc", &[&format!("-print-file-name=lib{name}.a")]).ok()?;
    let path = Path::new(&file);
    if !path.is_absolute() {
        return None;
    }
    Some(path.parent()?.to_str()?.to_string())
}

fn output_of(program: &str, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{shown}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
