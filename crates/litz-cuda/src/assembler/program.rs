//! Assembles PTX by `ptxas`, which CUDA's compiler and Triton bring.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Assembled;

/// The program's name.
const NAME: &str = "ptxas";

/// Where installations of Python's packages have it, from the folder of these: in CUDA's compiler and in Triton, which PyTorch brings.
const OF_PACKAGES: [&str; 2] = ["nvidia/cu13/bin", "triton/backends/nvidia/bin"];

/// The program.
pub struct Ptxas(PathBuf);

impl Ptxas {
    /// That of the installation that nvJitLink is of, if any, else that of CUDA's, else one on the path.
    pub fn beside(library: Option<&Path>) -> Option<Ptxas> {
        let is_packages =
            |folder: &&Path| folder.ends_with("site-packages") || folder.ends_with("dist-packages");
        let packages = library.and_then(|library| library.ancestors().find(is_packages)).into_iter();
        let of_packages = packages.flat_map(|folder| OF_PACKAGES.map(|own| folder.join(own)));
        let cuda =
            std::env::var_os("CUDA_HOME").map(PathBuf::from).into_iter().chain(["/usr/local/cuda".into()]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let folders = of_packages.chain(cuda.map(|folder| folder.join("bin"))).chain(on_path);
        folders.map(|folder| folder.join(NAME)).find(|file| file.is_file()).map(Ptxas)
    }

    /// The program's length, which differs between versions: to ask it for its version would take as long as to assemble a small kernel.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.0).map_or(0, |data| data.len())
    }

    /// Machine code for an architecture such as `sm_90a`.
    ///
    /// # Errors
    /// What the program says, or why it does not run.
    pub fn assemble(&self, ptx: &str, arch: &str) -> Result<Assembled, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let [text, cubin] = ["kernels.ptx", "kernels.cubin"].map(|name| folder.path().join(name));
        std::fs::write(&text, ptx).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.0);
        command.arg(format!("-arch={arch}")).arg("-v").arg(&text).arg("-o").arg(&cubin);
        let said = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let log = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        if !said.status.success() {
            return Err(format!("{}: {log}", self.0.display()));
        }
        Ok(Assembled { cubin: std::fs::read(&cubin).map_err(|error| error.to_string())?, log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_of_the_same_packages_comes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let packages = folder.path().join("lib/python3.12/site-packages");
        let library = packages.join("nvidia/cu13/lib/libnvJitLink.so.13");
        let put = |own: &str| {
            std::fs::create_dir_all(packages.join(own)).expect("a folder");
            std::fs::write(packages.join(own).join(NAME), "").expect("a file");
        };
        let found = || Ptxas::beside(Some(&library)).map(|program| program.0);
        put(OF_PACKAGES[1]);
        assert_eq!(found(), Some(packages.join(OF_PACKAGES[1]).join(NAME)));
        put(OF_PACKAGES[0]);
        assert_eq!(found(), Some(packages.join(OF_PACKAGES[0]).join(NAME)));
    }

    #[test]
    fn what_does_not_run_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Ptxas(folder.path().join(NAME)).assemble("", "sm_90a").expect_err("there is none");
        assert!(!error.is_empty());
    }
}
