//! Reads the sizes of the processor's caches from what Linux says of them.

use litz_ir::target::Cpu;
use std::path::Path;

/// Bytes of a core's data caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caches {
    /// Of the first level.
    pub l1_bytes: i64,
    /// Of the second level.
    pub l2_bytes: i64,
}

impl Caches {
    /// Sizes to assume for processors that report none.
    pub const USUAL: Caches = Caches { l1_bytes: Cpu::USUAL_L1_BYTES, l2_bytes: Cpu::USUAL_L2_BYTES };

    /// Bounds of what is believed; virtual machines may report anything. The largest caches of one core are those of
    /// Apple's M4 (128 KiB) and of Intel's Lion Cove (3 MiB).
    const LEAST: Caches = Caches { l1_bytes: 16 << 10, l2_bytes: 128 << 10 };
    const MOST: Caches = Caches { l1_bytes: 128 << 10, l2_bytes: 3 << 20 };

    /// The caches of this machine's first processor.
    pub fn of_machine() -> Caches {
        Caches::of(Path::new("/sys/devices/system/cpu/cpu0"))
    }

    /// As the kernel describes a processor in that folder.
    fn of(cpu: &Path) -> Caches {
        let l1_bytes = level(cpu, "1").unwrap_or(Caches::USUAL.l1_bytes);
        let l2_bytes = level(cpu, "2").unwrap_or(Caches::USUAL.l2_bytes);
        let (least, most) = (Caches::LEAST, Caches::MOST);
        Caches {
            l1_bytes: l1_bytes.clamp(least.l1_bytes, most.l1_bytes),
            l2_bytes: l2_bytes.clamp(least.l2_bytes, most.l2_bytes),
        }
    }
}

/// A core's share of the data cache of a level, where it can be read.
fn level(cpu: &Path, level: &str) -> Option<i64> {
    let folders = std::fs::read_dir(cpu.join("cache")).ok()?;
    folders.filter_map(Result::ok).find_map(|folder| {
        let text = |name: &str| line(&folder.path().join(name));
        let is_data = text("level")? == level && text("type")? != "Instruction";
        let bytes = bytes(&text("size")?).filter(|&bytes| is_data && bytes > 0)?;
        let sharing = text("shared_cpu_list").map_or(1, |list| count(&list));
        let threads = line(&cpu.join("topology/thread_siblings_list")).map_or(1, |list| count(&list));
        Some(bytes / (sharing / threads.max(1)).max(1))
    })
}

fn line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// `48K` as a number of bytes.
fn bytes(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(1 << shift)
}

/// How many processors a list like `0-3,8` names; what is no list names none.
fn count(list: &str) -> i64 {
    let run = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((last.parse::<i64>().ok()? - first.parse::<i64>().ok()?).checked_add(1)?.max(0))
    };
    list.split(',').filter_map(run).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A processor with caches: level, type, size, processors that share it.
    fn processor(name: &str, siblings: &str, caches: &[[&str; 4]]) -> Caches {
        let folder: PathBuf = std::env::temp_dir().join(format!("litz-caches-{}-{name}", std::process::id()));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("files are in folders")).expect("writable");
            fs::write(path, format!("{text}\n")).expect("writable");
        };
        write(folder.join("topology/thread_siblings_list"), siblings);
        for (at, [level, kind, size, sharing]) in caches.iter().enumerate() {
            let cache = folder.join(format!("cache/index{at}"));
            let files = [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", sharing)];
            files.into_iter().for_each(|(name, text)| write(cache.join(name), text));
        }
        let found = Caches::of(&folder);
        fs::remove_dir_all(&folder).expect("removable");
        found
    }

    #[test]
    fn data_caches_of_a_core_are_read() {
        let xeon = [
            ["1", "Instruction", "64K", "0"],
            ["1", "Data", "48K", "0"],
            ["2", "Unified", "2048K", "0"],
            ["3", "Unified", "491520K", "0-1"],
        ];
        assert_eq!(processor("xeon", "0", &xeon), Caches { l1_bytes: 48 << 10, l2_bytes: 2 << 20 });
    }

    #[test]
    fn caches_are_shared_by_cores_not_by_their_threads() {
        let caches = [["1", "Data", "32K", "0,4"], ["2", "Unified", "4M", "0-7"]];
        assert_eq!(processor("shared", "0,4", &caches), Caches { l1_bytes: 32 << 10, l2_bytes: 1 << 20 });
    }

    #[test]
    fn nonsense_and_silence_give_usual_sizes() {
        assert_eq!(processor("silent", "0", &[]), Caches::USUAL);
        assert_eq!(processor("strange", "x", &[["2", "Unified", "many", "?"]]), Caches::USUAL);
        let nonsense = [["1", "Data", "16384K", "0"], ["2", "Unified", "0K", "0"]];
        assert_eq!(processor("nonsense", "0", &nonsense), Caches { l1_bytes: 128 << 10, ..Caches::USUAL });
    }
}
