//! Writes compiled models to files that run without Litz, and reads them.

use crate::backends::{self, Device};
use crate::code::contents;
use crate::compiled::{Compiled, run_options};
use crate::error::Error;
use crate::host;
use crate::model::Model;
use crate::options::Options;
use crate::pipeline::Texts;
use crate::profile::Profile;
use crate::runner::Timing;
use litz_ir::Diag;
use litz_runtime::artifact::{self, Artifact};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{ConstantSource, Executable};
use std::path::Path;
use std::sync::Arc;

impl Model {
    /// Compiles, and writes to one file what [`Compiled::save_updatable`] writes: for a target that this machine need not be able to run, such as
    /// a GPU that it does not have. Nothing is loaded; load steps run where the file is. Returns what each stage took.
    ///
    /// # Errors
    /// As [`Model::compile`], and when the file cannot be written.
    pub fn save_for(
        &self,
        path: impl AsRef<Path>,
        options: &Options,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Timing>, Error> {
        let (timings, realized, code) = self.code_for(options, progress)?;
        artifact::write_unloaded(path.as_ref(), &code.parts(&realized, ConstantSource::Model), self)?;
        Ok(timings)
    }
}

impl Compiled {
    /// Writes the program, its machine code and its constants, as they are at this moment, to one file, which
    /// [`litz_runtime::artifact::Artifact`] runs without a compiler. The file is for machines with this one's kind of
    /// CPU, or that of [`Options::target`].
    ///
    /// # Errors
    /// When the file cannot be written, or the model was compiled for the reference device, which has no code.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write(path.as_ref(), ConstantSource::Folded)
    }

    /// As [`Compiled::save`], with the model's own constants and the steps that pack and fold them, which run at each start: what is
    /// loaded from the file can be given new contents of constants ([`Compiled::update`]).
    ///
    /// # Errors
    /// As [`Compiled::save`], and where this was loaded from a file that [`Compiled::save`] wrote.
    pub fn save_updatable(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write(path.as_ref(), ConstantSource::Model)
    }

    fn write(&self, path: &Path, constants: ConstantSource) -> Result<(), Error> {
        let (Some(code), Some(realized)) = (&self.code, &self.texts.realized) else {
            let message = "the reference device has no machine code to save";
            return Err(Error::Unsupported(vec![Diag::new("unsupported-device", message)]));
        };
        Ok(artifact::write(path, &code.parts(realized, constants), &self.executable)?)
    }

    /// Reads a file that [`Compiled::save`] wrote, ready to run with the threads, limits and host of these options. Of its texts there
    /// are kernels and program. The file holds machine code: it is as trusted as any other program.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged, when this machine cannot run its code, when it needs a host that the options do not
    /// have.
    pub fn load(path: impl AsRef<Path>, options: &Options) -> Result<Compiled, Error> {
        let artifact = Artifact::open(path)?;
        let pool = if options.bind { ThreadPool::new } else { ThreadPool::unbound };
        let pool = match &options.pool {
            Some(shared) => Arc::clone(&shared.0),
            None => Arc::new(pool(options.threads)),
        };
        let device = artifact.device(pool, options.device_number)?;
        let profile = options.profile.then(|| Arc::new(Profile::new(device.clone())));
        let device = profile.as_ref().map_or(device, |profile| Arc::clone(profile) as Device);
        let (program, kernels) = (artifact.program(), artifact.kernels());
        let (device, devices) = backends::devices(program, kernels, device)?;
        let constants = artifact.constants();
        let run_options = run_options(options, devices, constants);
        let executable = Executable::with_options(program, kernels, device, &artifact, &run_options)?;
        let warnings = host::warnings(program, options);
        let (realized, code) = contents(&artifact)?;
        let texts = Texts { realized: Some(realized), ..Texts::default() };
        Ok(Compiled {
            executable,
            code: Some(Arc::new(code)),
            constants,
            warnings,
            timings: Vec::new(),
            texts,
            profile,
            reference: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Verify;
    use litz_runtime::Tensor;
    use litz_runtime::artifact::ArtifactError;
    use std::fs;
    use std::path::PathBuf;

    /// A folder of its own for each test, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("litz-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("writable");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.pt2");

    fn digits() -> Model {
        Model::open(DIGITS).expect("it is a model")
    }

    fn options(cache: Option<&Path>) -> Options {
        Options {
            threads: 2,
            verify: Verify::Nothing,
            cache: cache.map(Path::to_owned),
            ..Options::default()
        }
    }

    /// Numbers that differ, in the sizes that the model takes.
    fn inputs(model: &Model) -> Vec<Tensor> {
        let facts = &model.imported.graph.facts;
        let value = |sym| Some(facts.hint_of(sym).unwrap_or(3));
        let make = |(_, ty): (&str, std::borrow::Cow<'_, litz_ir::graph::TensorType>)| {
            let sizes: Vec<usize> =
                ty.sizes.iter().map(|e| e.eval(&value).expect("known") as usize).collect();
            let values: Vec<f32> =
                (0..sizes.iter().product()).map(|at: usize| (at % 17) as f32 / 16.0).collect();
            Tensor::from_slice(&sizes, &values).expect("lengths match")
        };
        model.inputs().into_iter().map(make).collect()
    }

    fn results(outputs: Vec<litz_runtime::program::Value>) -> Vec<Tensor> {
        outputs.iter().map(|output| output.tensor().expect("a tensor").clone()).collect()
    }

    fn run(compiled: &Compiled, model: &Model) -> Vec<Tensor> {
        results(compiled.run(&inputs(model)).expect("the call is right"))
    }

    fn was_scheduled(compiled: &Compiled) -> bool {
        compiled.timings.iter().any(|timing| timing.name == "schedule")
    }

    #[test]
    fn a_saved_program_runs_alone_and_gives_the_same() {
        let (folder, model) = (Folder::new("saved"), digits());
        let path = folder.0.join("digits.litzc");
        let compiled = model.compile(&options(None)).expect("compiles");
        compiled.save(&path).expect("writes");
        let artifact = Artifact::open(&path).expect("it is sound");
        artifact.check().expect("it is sound");
        let executable = artifact.executable(2).expect("this machine compiled it");
        let direct = run(&compiled, &model);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let outputs = executable.run(&inputs(&model)).expect("the call is right");
                    assert_eq!(results(outputs), direct);
                });
            }
        });
        let names: Vec<&str> = model.inputs().into_iter().map(|(name, _)| name).collect();
        assert_eq!(artifact.inputs(), names);
        assert_eq!(artifact.outputs().len(), direct.len());
    }

    #[test]
    fn a_saved_program_can_be_loaded_and_saved_again() {
        let (folder, model) = (Folder::new("loaded"), digits());
        let [path, again] = ["digits.litzc", "again.litzc"].map(|name| folder.0.join(name));
        let compiled = model.compile(&options(None)).expect("compiles");
        compiled.save(&path).expect("writes");
        let loaded = Compiled::load(&path, &options(None)).expect("it is sound");
        let names = (vec!["input".to_owned()], vec!["out".to_owned()]);
        assert_eq!(loaded.names(), Some((&*names.0, &*names.1)));
        assert_eq!(run(&loaded, &model), run(&compiled, &model));
        loaded.save(&again).expect("writes");
        let again = Compiled::load(&again, &options(None)).expect("it is sound");
        assert_eq!(run(&again, &model), run(&compiled, &model));
        assert!(Compiled::load(DIGITS, &options(None)).is_err(), "it is no program");
    }

    #[test]
    fn constants_are_updated_where_they_are_saved_as_the_model_has_them() {
        let (folder, model) = (Folder::new("updatable"), digits());
        let [path, packed] = ["digits.litzc", "packed.litzc"].map(|name| folder.0.join(name));
        let compiled = model.compile(&options(None)).expect("compiles");
        let direct = run(&compiled, &model);
        compiled.save_updatable(&path).expect("writes");
        let loaded = Compiled::load(&path, &options(None)).expect("it is sound");
        assert_eq!((run(&loaded, &model), loaded.constants()), (direct.clone(), compiled.constants()));
        let shared =
            compiled.share(&Options { threads: 1, ..options(None) }).expect("it is the same program");
        assert_eq!(run(&shared, &model), direct);
        let constants = loaded.constants();
        let contents: Vec<Tensor> = constants
            .iter()
            .map(|constant| {
                let values =
                    loaded.constant(constant.name).expect("it is there").to_vec::<f32>().expect("of f32");
                let halved: Vec<f32> = values.iter().map(|value| value / 2.0).collect();
                Tensor::from_slice(constant.sizes, &halved).expect("lengths match")
            })
            .collect();
        let contents: Vec<(&str, &Tensor)> =
            constants.iter().map(|constant| constant.name).zip(&contents).collect();
        for compiled in [&loaded, &compiled] {
            compiled.update(&contents).expect("these are its constants");
            assert_ne!(run(compiled, &model), direct);
        }
        assert_eq!(run(&loaded, &model), run(&compiled, &model));
        assert_eq!(run(&shared, &model), run(&compiled, &model));
        // What is saved is what calls see.
        compiled.save(&packed).expect("writes");
        let packed = Compiled::load(&packed, &options(None)).expect("it is sound");
        assert_eq!(run(&packed, &model), run(&compiled, &model));
        let error = packed.update(&contents).expect_err("it has them packed").to_string();
        assert!(error.contains("`litz compile --updatable`"), "{error}");
        assert!(packed.save_updatable(&path).is_err());
    }

    #[test]
    fn the_second_compilation_takes_everything_from_the_cache() {
        let (folder, model) = (Folder::new("kept"), digits());
        let first = model.compile(&options(Some(&folder.0))).expect("compiles");
        let second = digits().compile(&options(Some(&folder.0))).expect("compiles");
        assert!(was_scheduled(&first) && !was_scheduled(&second));
        assert_eq!(run(&second, &model), run(&first, &model));
        // What it took from the cache can be saved like what was compiled.
        let path = folder.0.join("digits.litzc");
        second.save(&path).expect("writes");
        let executable =
            Artifact::open(&path).and_then(|artifact| artifact.executable(1)).expect("it is sound");
        let outputs = executable.run(&inputs(&model)).expect("the call is right");
        assert_eq!(results(outputs), run(&first, &model));
    }

    /// The only entry of the cache that holds what load steps computed.
    fn memory_entry(folder: &Path) -> PathBuf {
        let entries = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
        let mut memory = entries.filter(|path| path.extension().is_some_and(|extension| extension == "mem"));
        let path = memory.next().expect("it is kept");
        assert_eq!(memory.next(), None);
        path
    }

    #[test]
    fn load_steps_run_once_for_all_processes() {
        let (folder, model) = (Folder::new("memory"), digits());
        let cached = options(Some(&folder.0));
        let direct = run(&model.compile(&options(None)).expect("compiles"), &model);
        let compile = || digits().compile(&cached).expect("compiles");
        assert_eq!(run(&compile(), &model), direct);
        assert_eq!(run(&compile(), &model), direct);
        // What the second took was what the first left, or else it would not see this.
        let path = memory_entry(&folder.0);
        let mut bytes = fs::read(&path).expect("readable");
        bytes[..1000].fill(0x3f);
        fs::write(&path, &bytes).expect("writable");
        assert_ne!(run(&compile(), &model), direct);
        // Another compilation has nothing to do with it, and one that is in memory has no file to go by.
        let compiled = digits().compile(&Options { threads: 1, ..cached.clone() }).expect("compiles");
        assert_eq!(run(&compiled, &model), direct);
        let in_memory = Arc::new(fs::read(DIGITS).expect("readable"));
        let compiled =
            Model::from_bytes(in_memory).and_then(|model| model.compile(&cached)).expect("compiles");
        assert_eq!(run(&compiled, &model), direct);
    }

    #[test]
    fn weights_of_a_file_that_changed_are_not_those_of_before() {
        let folder = Folder::new("changed");
        let (path, cache) = (folder.0.join("model.pt2"), folder.0.join("cache"));
        let cached = options(Some(&cache));
        // Waits until a change can be told from the one before.
        let result = || {
            let model = loop {
                let model = Model::open(&path).expect("it is a model");
                if model.file().is_some() {
                    break model;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            };
            let with_cache = run(&model.compile(&cached).expect("compiles"), &model);
            let without = run(&model.compile(&options(None)).expect("compiles"), &model);
            assert_eq!(with_cache, without);
            with_cache
        };
        let mut bytes = fs::read(DIGITS).expect("readable");
        fs::write(&path, &bytes).expect("writable");
        let first = result();
        assert_eq!(result(), first);
        // Negates every weight of a convolution, in place: directory and length stay as they are.
        let entry = digits().imported.weights["4.weight"].storage.clone();
        bytes[entry].chunks_exact_mut(4).for_each(|element| element[3] ^= 0x80);
        fs::write(&path, &bytes).expect("writable");
        assert_ne!(result(), first);
    }

    #[test]
    fn other_options_and_damage_compile_anew() {
        let (folder, model) = (Folder::new("missed"), digits());
        let cached = options(Some(&folder.0));
        model.compile(&cached).expect("compiles");
        let others = [
            Options { target: "cpu(isa=sse2, threads=2)".parse().ok(), ..cached.clone() },
            Options { threads: 1, ..cached.clone() },
            Options { verify: Verify::Passes, ..cached.clone() },
        ];
        for other in &others {
            assert!(was_scheduled(&model.compile(other).expect("compiles")), "{other:?}");
        }
        for entry in fs::read_dir(&folder.0).expect("readable") {
            let path = entry.expect("readable").path();
            let bytes = fs::read(&path).expect("readable");
            fs::write(&path, &bytes[..bytes.len() / 2]).expect("writable");
        }
        assert!(was_scheduled(&model.compile(&cached).expect("compiles")));
    }

    fn for_gpus(architectures: &[&str], cache: Option<&Path>) -> Options {
        let target = "gpu(isa=sm80, units=108)".parse().expect("a target");
        let architectures = architectures.iter().map(|name| name.parse().expect("a name")).collect();
        let mut options = Options { architectures, ..options(cache) };
        options.set_target(target);
        options
    }

    #[test]
    fn programs_for_gpus_are_saved_on_any_machine() {
        let (folder, model) = (Folder::new("gpu"), digits());
        let path = folder.0.join("digits.litzc");
        let options = for_gpus(&["sm_80", "sm_90"], Some(&folder.0.join("cache")));
        let timings = model.save_for(&path, &options, &mut |_| {}).expect("compiles");
        assert!(timings.iter().any(|timing| timing.name == "schedule"));
        let artifact = Artifact::open(&path).expect("it is sound");
        artifact.check().expect("it is sound");
        let names: Vec<String> =
            artifact.architectures().expect("sound").iter().map(ToString::to_string).collect();
        // Machine code only where nvJitLink is.
        assert!(names == ["sm_80", "sm_90", "compute_80"] || names == ["compute_80"], "{names:?}");
        assert_eq!(artifact.constants(), ConstantSource::Model);
        match artifact.executable(1) {
            Ok(executable) => {
                let found = results(executable.run(&inputs(&model)).expect("the call is right"));
                let direct = run(&model.compile(&self::options(None)).expect("compiles"), &model);
                for (found, direct) in found.iter().zip(&direct) {
                    let pairs = found.to_f64().into_iter().zip(direct.to_f64());
                    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(1.0)));
                }
            }
            Err(ArtifactError::Gpu { message }) => assert!(message.contains("GPU"), "{message}"),
            Err(other) => panic!("{other}"),
        }
        // What is in the cache is the same program.
        let again = folder.0.join("again.litzc");
        let timings = model.save_for(&again, &options, &mut |_| {}).expect("it is there");
        assert!(timings.iter().all(|timing| timing.name != "schedule"));
        assert_eq!(fs::read(&again).expect("readable"), fs::read(&path).expect("readable"));
        // Code for other GPUs is another entry.
        let others = Options { architectures: Vec::new(), ..options };
        let timings = model.save_for(&again, &others, &mut |_| {}).expect("compiles");
        assert!(timings.iter().any(|timing| timing.name == "schedule"));
    }

    #[test]
    fn programs_for_gpus_that_are_cut_off_are_refused() {
        let (folder, model) = (Folder::new("gpu-cut"), digits());
        let path = folder.0.join("digits.litzc");
        model.save_for(&path, &for_gpus(&[], None), &mut |_| {}).expect("compiles");
        let bytes = fs::read(&path).expect("readable");
        for part in 0..16 {
            let cut = bytes[..bytes.len() * part / 16].to_vec();
            assert!(Artifact::from_bytes(Arc::new(cut)).is_err(), "{part} of 16");
        }
    }

    #[test]
    fn code_for_earlier_gpus_than_the_target_is_refused() {
        let error = digits().save_for("never.litzc", &for_gpus(&["sm_75"], None), &mut |_| {});
        let error = error.expect_err("sm_75 has fewer instructions").to_string();
        assert!(error.contains("cannot be made for sm_75"), "{error}");
    }

    #[test]
    fn the_reference_device_has_nothing_to_save() {
        let compiled = digits().compile(&Options { reference: true, ..options(None) }).expect("compiles");
        let error = compiled.save(std::env::temp_dir().join("never.litzc")).expect_err("there is no code");
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
}
