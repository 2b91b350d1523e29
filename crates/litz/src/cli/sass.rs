//! Shows the machine code of GPUs, by CUDA's `nvdisasm`.

use super::failure::Failure;
use litz_runtime::images;
use std::io::Write;
use std::process::Command;

/// The tool, on the path or where CUDA is installed.
const TOOLS: [&str; 2] = ["nvdisasm", "/usr/local/cuda/bin/nvdisasm"];

/// The instructions of an object that a backend for GPUs has assembled, of the latest architecture that it has.
pub fn text(object: &[u8]) -> Result<Vec<u8>, Failure> {
    let images = images::unpack(object)
        .map_err(|_| Failure::invalid("SASS is what GPUs run: --target 'gpu(isa=sm80, units=108)'"))?;
    let machine_code = images.iter().filter(|(architecture, _)| architecture.is_machine_code());
    let Some((_, code)) = machine_code.max_by_key(|(architecture, _)| *architecture) else {
        return Err(Failure::invalid(
            "there is neither nvJitLink nor ptxas here to assemble PTX: install CUDA's, and put ptxas on the PATH, or PyPI's nvidia-nvjitlink, and name its folder in LD_LIBRARY_PATH",
        ));
    };
    let mut file = tempfile::NamedTempFile::new()
        .map_err(|error| Failure::io("make a file in", &std::env::temp_dir(), &error))?;
    file.write_all(code).map_err(|error| Failure::io("write", file.path(), &error))?;
    for tool in TOOLS {
        match Command::new(tool).arg("--print-code").arg(file.path()).output() {
            Ok(said) if said.status.success() => return Ok(said.stdout),
            Ok(said) => {
                let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
                return Err(Failure::invalid(format_args!("{tool}: {why}")));
            }
            Err(_) => {}
        }
    }
    Err(Failure::invalid("there is no nvdisasm here: put the folder of CUDA's tools on the PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_gpu_runs_is_refused_with_what_to_do() {
        let said = |object: &[u8]| text(object).expect_err("it has no machine code of GPUs").to_string();
        assert!(said(b"\x7fELF").contains("--target 'gpu("), "{}", said(b"\x7fELF"));
        let ptx = images::pack(&[("compute_80".parse().expect("a name"), b".version 8.0".to_vec())]);
        assert!(said(&ptx).contains("nvidia-nvjitlink"), "{}", said(&ptx));
    }
}
