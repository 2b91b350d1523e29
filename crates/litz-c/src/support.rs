//! Holds the C that all models share, and writes what builds a model.

/// Files that every model needs beside its own, by name.
pub const SUPPORT: &[(&str, &str)] = &[
    ("litz.h", include_str!("../support/litz.h")),
    ("litz_fourier.c", include_str!("../support/litz_fourier.c")),
    ("litz_linear.c", include_str!("../support/litz_linear.c")),
    ("litz_model.h", include_str!("../support/litz_model.h")),
    ("litz_numbers.c", include_str!("../support/litz_numbers.c")),
    ("litz_regions.c", include_str!("../support/litz_regions.c")),
    ("litz_routines.c", include_str!("../support/litz_routines.c")),
    ("litz_routines.h", include_str!("../support/litz_routines.h")),
    ("litz_sizes.c", include_str!("../support/litz_sizes.c")),
    ("litz_special.c", include_str!("../support/litz_special.c")),
    ("litz_special_tables.h", include_str!("../support/litz_special_tables.h")),
    ("litz_support.c", include_str!("../support/litz_support.c")),
    ("litz_support.h", include_str!("../support/litz_support.h")),
    ("litz_threads.c", include_str!("../support/litz_threads.c")),
];

/// A makefile that builds `libNAME.a` of the model's source, the support code and `objects`, with `compiler`.
pub fn makefile(name: &str, objects: &[String], compiler: &str) -> String {
    let own = SUPPORT.iter().filter_map(|(file, _)| file.strip_suffix(".c"));
    let sources: Vec<String> = own.chain([name]).map(|file| format!("{file}.o")).collect();
    format!(
        "# Builds lib{name}.a: link it with -lm -pthread.\n\
         CC = {compiler}\n\
         CFLAGS = -std=c99 -O2 -Wall -Wextra -pedantic -ffp-contract=off\n\
         SOURCES = {}\n\
         KERNELS = {}\n\n\
         lib{name}.a: $(SOURCES) $(KERNELS)\n\
         \t$(AR) rcs $@ $^\n\n\
         $(SOURCES): {name}.h litz.h litz_support.h litz_model.h litz_routines.h\n\n\
         clean:\n\
         \trm -f lib{name}.a $(SOURCES)\n\n\
         .PHONY: clean\n",
        sources.join(" "),
        objects.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_makefile_names_every_source() {
        let text = makefile("digits", &["digits_0.o".to_owned()], "cc");
        assert!(
            SUPPORT
                .iter()
                .filter_map(|(file, _)| file.strip_suffix(".c"))
                .all(|file| text.contains(&format!("{file}.o")))
        );
        assert!(text.contains("KERNELS = digits_0.o") && text.contains("digits.o"));
    }

    /// A string of `SUPPORT` that is not of the folder, or the other way around, would be a file that nobody compiles.
    #[test]
    fn files_are_those_of_the_folder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("support");
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        let mut found: Vec<String> = entries
            .map(|entry| entry.expect("it is readable").file_name().to_string_lossy().into_owned())
            .collect();
        found.sort();
        assert_eq!(found, SUPPORT.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
    }
}
