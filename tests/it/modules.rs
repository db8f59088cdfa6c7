//! A module imports only modules above it in `src/lib.rs`, which lists them in the order of the flow.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn modules_import_only_what_stands_above_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(src.join("lib.rs")).expect("lib.rs");
    let names = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let order: HashMap<&str, usize> = names.enumerate().map(|(position, name)| (name, position)).collect();
    assert!(order.len() > 10, "lib.rs lists the modules");

    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut wrong = Vec::new();
    let mut imports = 0;
    for file in files {
        let below = file.strip_prefix(&src).expect("a file below src");
        let first = below.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs");
        let Some(own) = order.get(module) else { continue };
        let text = fs::read_to_string(&file).expect("a source file");
        for (number, line) in text.lines().enumerate() {
            // Prose and strings may mention a module; code names it after `crate::`.
            let code = line.split("//").next().unwrap_or_default();
            for rest in code.split("crate::").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let Some(position) = order.get(name.as_str()) else { continue };
                imports += 1;
                if position > own {
                    wrong.push(format!(
                        "{}:{}: {module} imports {name}, which stands below it",
                        below.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(imports > 100, "only {imports} imports were seen");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
