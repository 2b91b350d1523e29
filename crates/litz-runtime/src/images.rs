//! Holds code of kernels for several architectures of NVIDIA GPUs in one object, and finds what a GPU runs.
//!
//! ```text
//! magic (8 bytes), count (u32), for each image: its architecture's length (u32), name and length (u64)
//! the images, in that order, one behind the other
//! ```
//!
//! Numbers are little-endian. Who keeps objects in files has checksums of them.

use std::fmt;
use std::str::FromStr;

const MAGIC: &[u8; 8] = b"litzgpu\0";

/// What code is for: `sm_80` is machine code for compute capability 8.0, `sm_90a` for 9.0 and no other, `compute_80` PTX for 8.0 and all later ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Architecture {
    is_machine_code: bool,
    /// 80 for 8.0.
    capability: u32,
    /// Whether the code has instructions of this capability alone.
    is_alone: bool,
}

impl Architecture {
    /// Machine code for a compute capability, 80 for 8.0, and those of the same first digit that come later; with `is_alone` for this one only.
    pub fn machine_code(capability: u32, is_alone: bool) -> Architecture {
        Architecture { is_machine_code: true, capability, is_alone }
    }

    /// The PTX that machine code for this is assembled from.
    pub fn ptx(self) -> Architecture {
        Architecture { is_machine_code: false, ..self }
    }

    /// Whether it is machine code, and not PTX.
    pub fn is_machine_code(self) -> bool {
        self.is_machine_code
    }

    /// 80 for 8.0.
    pub fn capability(self) -> u32 {
        self.capability
    }

    /// Whether a GPU of a compute capability runs it. (CUDA programming guide, binary and PTX compatibility.)
    pub fn runs_on(self, capability: u32) -> bool {
        if self.is_alone {
            return capability == self.capability;
        }
        let is_kin = !self.is_machine_code || capability / 10 == self.capability / 10;
        is_kin && self.capability <= capability
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_machine_code { "sm" } else { "compute" };
        write!(f, "{kind}_{}{}", self.capability, if self.is_alone { "a" } else { "" })
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(text: &str) -> Result<Architecture, String> {
        let wrong = || format!("expected an architecture such as sm_80 or sm_90a, found `{text}`");
        let (kind, rest) = text.split_once('_').ok_or_else(wrong)?;
        let digits = rest.trim_end_matches('a');
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let capability = digits.parse().ok().filter(|_| is_number && rest.len() <= digits.len() + 1);
        let is_machine_code = match kind {
            "sm" => true,
            "compute" => false,
            _ => return Err(wrong()),
        };
        let capability = capability.ok_or_else(wrong)?;
        Ok(Architecture { is_machine_code, capability, is_alone: rest.len() > digits.len() })
    }
}

/// Why an object has no code for a GPU.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// No object, or one that is cut off.
    #[error("an object of a GPU's code is damaged")]
    Damaged,
    /// Code for others.
    #[error(
        "the code is for {}, which a GPU of sm_{found} does not run: compile the model with `--arch sm_{found}`",
        list(expected)
    )]
    OtherGpu {
        /// Those that there is code for.
        expected: Vec<Architecture>,
        /// The compute capability of the GPU, 80 for 8.0.
        found: u32,
    },
}

fn list(architectures: &[Architecture]) -> String {
    architectures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// An object of code for several architectures.
pub fn pack(images: &[(Architecture, Vec<u8>)]) -> Vec<u8> {
    let mut object = MAGIC.to_vec();
    object.extend((images.len() as u32).to_le_bytes());
    for (architecture, bytes) in images {
        let name = architecture.to_string();
        object.extend((name.len() as u32).to_le_bytes());
        object.extend(name.as_bytes());
        object.extend((bytes.len() as u64).to_le_bytes());
    }
    images.iter().for_each(|(_, bytes)| object.extend(bytes));
    object
}

/// What an object has code for, and the code.
///
/// # Errors
/// [`ImageError::Damaged`].
pub fn unpack(object: &[u8]) -> Result<Vec<(Architecture, &[u8])>, ImageError> {
    read(object).ok_or(ImageError::Damaged)
}

fn read(object: &[u8]) -> Option<Vec<(Architecture, &[u8])>> {
    let mut rest = object.strip_prefix(MAGIC)?;
    let mut take = |count: usize| -> Option<&[u8]> {
        let (taken, behind) = rest.split_at_checked(count)?;
        rest = behind;
        Some(taken)
    };
    let count = u32::from_le_bytes(take(4)?.try_into().ok()?);
    let mut table = Vec::new();
    for _ in 0..count {
        let length = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let name = std::str::from_utf8(take(usize::try_from(length).ok()?)?).ok()?;
        let bytes = u64::from_le_bytes(take(8)?.try_into().ok()?);
        table.push((name.parse::<Architecture>().ok()?, usize::try_from(bytes).ok()?));
    }
    let images = table.into_iter().map(|(architecture, bytes)| Some((architecture, take(bytes)?)));
    let images = images.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(images)
}

/// The code of an object for a GPU of a compute capability: machine code where there is some, of the latest architecture that it runs.
///
/// # Errors
/// When the object is damaged, or has code for other GPUs alone.
pub fn image_for(object: &[u8], capability: u32) -> Result<&[u8], ImageError> {
    let images = unpack(object)?;
    let fitting = images.iter().filter(|(architecture, _)| architecture.runs_on(capability));
    let best = fitting.max_by_key(|(architecture, _)| *architecture).map(|(_, bytes)| *bytes);
    best.ok_or_else(|| ImageError::OtherGpu {
        expected: images.iter().map(|(architecture, _)| *architecture).collect(),
        found: capability,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Architecture {
        name.parse().expect("a name")
    }

    fn object() -> Vec<u8> {
        let images = ["compute_80", "sm_80", "sm_86", "sm_90a"];
        pack(&images.map(|name| (named(name), name.as_bytes().to_vec())))
    }

    #[test]
    fn a_gpu_takes_machine_code_of_the_latest_architecture_that_it_runs() {
        let object = object();
        let found = |capability| image_for(&object, capability).map(|bytes| String::from_utf8_lossy(bytes));
        for (capability, expected) in [
            (80, "sm_80"),
            (86, "sm_86"),
            (89, "sm_86"),
            (90, "sm_90a"),
            (100, "compute_80"),
            (103, "compute_80"),
        ] {
            assert_eq!(found(capability).as_deref(), Ok(expected), "{capability}");
        }
        let error = found(75).expect_err("it is older").to_string();
        assert!(
            error.contains("compute_80, sm_80, sm_86, sm_90a") && error.contains("--arch sm_75"),
            "{error}"
        );
    }

    #[test]
    fn what_is_cut_off_or_longer_is_refused() {
        let mut object = object();
        assert_eq!(unpack(&object).map(|images| images.len()), Ok(4));
        for length in 0..object.len() {
            assert_eq!(unpack(&object[..length]), Err(ImageError::Damaged), "{length}");
        }
        object.push(0);
        assert_eq!(unpack(&object), Err(ImageError::Damaged));
    }

    #[test]
    fn any_byte_may_be_wrong() {
        let sound = object();
        for at in 0..sound.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut object = sound.clone();
                object[at] = value;
                // What it says is read within the object, whatever it says.
                let _ = image_for(&object, 90);
            }
        }
        // A count, a name and an image that would be as long as memory.
        for (at, bytes) in [(8, 4), (12, 4), (26, 8)] {
            let mut object = sound.clone();
            object[at..at + bytes].fill(0xff);
            assert_eq!(unpack(&object), Err(ImageError::Damaged), "{at}");
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["sm_80", "sm_90a", "compute_100a", "compute_89"] {
            assert_eq!(named(name).to_string(), name);
        }
        for name in ["", "sm", "sm_", "sm_a", "sm_90aa", "sm_+90", "sm_9x", "lto_80", "sm_99999999999"] {
            assert!(name.parse::<Architecture>().is_err(), "{name}");
        }
        assert_eq!(named("sm_90a").ptx(), named("compute_90a"));
    }
}
