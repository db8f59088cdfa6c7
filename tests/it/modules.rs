//! A module imports only modules above it in `src/lib.rs`, which lists them in the order of the flow, and the files
//! of a module import each other in one direction.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

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

/// A run awaits agents through `peer`, and knows nothing of how what they say travels.
#[test]
fn a_run_knows_no_generated_types() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src.join("run"), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for path in paths_in(&text) {
            // Texts of values are no generated types.
            if path.get(1).is_some_and(|module| module == "wire") && path.get(2).is_none_or(|file| file != "value") {
                wrong.push(format!("{}: {}", file.display(), path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files of one module that import each other in a circle, and why they stay so.
const CIRCLES: &[(&[&str], &str)] = &[
    (&["suite/cases", "suite/framework"], "a case that is not held is read again by what read it first"),
    (&["suite/registry/barrel", "suite/registry/tools"], "names lead through values, and values through names"),
];

/// Files of one module import each other in one direction, so that each reads without those that are built on it.
#[test]
fn files_of_a_module_import_no_circles() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut circles = Vec::new();
    for module in ["run", "check", "suite", "daemon"] {
        let imports = imports_within(&src, module);
        assert!(imports.len() > 10 && imports.values().any(|to| to.len() > 3), "{module}: {imports:?}");
        circles.extend(circles_of(&imports));
    }
    let known: Vec<Vec<String>> =
        CIRCLES.iter().map(|(files, _)| files.iter().map(|file| (*file).to_owned()).collect()).collect();
    circles.sort();
    assert_eq!(circles, known);
}

/// Which files of a module import which others, tests left out.
fn imports_within(src: &Path, module: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    rust_files(&src.join(module), &mut files);
    let name_of = |file: &Path| {
        let below = file.strip_prefix(src).expect("a file below src").with_extension("");
        below.to_string_lossy().trim_end_matches("/mod").to_owned()
    };
    let names: BTreeSet<String> = files.iter().map(|file| name_of(file)).collect();
    let mut imports = BTreeMap::new();
    for file in &files {
        let own = name_of(file);
        let text = fs::read_to_string(file).expect("a source file");
        let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        let code = code.join("\n");
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let found = paths_in(code).into_iter().filter_map(|path| file_of(&path, &own, &names));
        imports.insert(own.clone(), found.filter(|to| *to != own && to != module).collect());
    }
    imports
}

/// Paths that begin with `crate` or `super`, those in braces each by itself.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                read_tree(&mut code[at..].chars().peekable(), &[], &mut paths);
            }
        }
    }
    paths
}

fn read_tree(code: &mut Peekable<Chars<'_>>, before: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    loop {
        while code.next_if(|c| c.is_whitespace()).is_some() {}
        if code.next_if_eq(&'{').is_some() {
            loop {
                read_tree(code, &path, paths);
                while code.next_if(|c| c.is_whitespace()).is_some() {}
                if code.next_if_eq(&',').is_none() {
                    code.next_if_eq(&'}');
                    return;
                }
            }
        }
        let mut name = String::new();
        while let Some(c) = code.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        let is_end = name.is_empty();
        path.extend((!is_end).then_some(name));
        if is_end || !(code.next_if_eq(&':').is_some() && code.next_if_eq(&':').is_some()) {
            paths.push(path);
            return;
        }
    }
}

/// The file that a path leads to, as it stands in the file `own`.
fn file_of(path: &[String], own: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut place: Vec<&str> = own.split('/').collect();
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        match first.as_str() {
            "crate" => place.clear(),
            "super" => drop(place.pop()),
            _ => break,
        }
        rest = behind;
    }
    let mut found = None;
    for name in rest {
        place.push(name);
        let file = place.join("/");
        if names.contains(&file) {
            found = Some(file);
        } else if found.is_some() {
            break;
        }
    }
    found
}

/// Files that lead to each other, in the order of their names.
fn circles_of(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            for to in imports.get(next).into_iter().flatten() {
                if reached.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<String>> = imports.keys().map(|file| (file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, to) in &all {
        let circle: Vec<String> = to.iter().filter(|other| all[other].contains(*file)).cloned().collect();
        circles.extend((circle.len() > 1).then_some(circle));
    }
    circles.into_iter().collect()
}

#[test]
fn a_circle_is_found() {
    let of = |text: &str| paths_in(text).into_iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(of("use super::{a, b::{C, d}};"), ["super::a", "super::b::C", "super::b::d"]);
    assert_eq!(of("pub(in crate::run) fn a(b: crate::x::Y)"), ["crate::run", "crate::x::Y"]);
    let to = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let imports = [("a", to(&["b"])), ("b", to(&["c"])), ("c", to(&["b"])), ("d", to(&["a"]))];
    let imports = imports.map(|(name, to)| (name.to_owned(), to)).into();
    assert_eq!(circles_of(&imports), [["b", "c"]]);
}
