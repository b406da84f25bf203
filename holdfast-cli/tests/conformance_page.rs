//! Keeps `docs/conformance.md` true: one row per case of the catalogue, every test that it names is there, and every
//! test that names a case is on the page.
//!
//! After adding tests, `HOLDFAST_UPDATE=1 cargo test -p holdfast-cli --test conformance_page` writes the column of
//! tests anew; remarks are written by hand.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs};

/// Numbers below the last that no case of the catalogue has.
const UNUSED: &[u16] = &[
    3, 40, 90, 94, 103, 105, 108, 113, 146, 154, 179, 209, 215, 221, 252, 261, 280, 284, 285, 298,
    305, 309, 318, 348, 353, 356, 367, 382, 403, 409, 412, 426, 437, 444, 460, 461, 468, 469, 473,
    486, 490, 499, 503, 505, 508, 518, 534, 551, 553, 582, 584, 587, 592, 593, 594, 597, 598, 612,
    630, 648, 667, 682, 687, 700, 718, 721, 729, 752,
];

/// The number of the last case.
const LAST: u16 = 780;

/// How many cases the catalogue has.
const COUNT: usize = 712;

/// The rules of a backend: functions with documentation, which tests of each backend call.
const RULES: &str = "backend-testkit/src/rules/";

/// Per case: the tests that name it, as `file::function`.
type Tests = BTreeMap<u16, BTreeSet<String>>;

/// A row of the page.
#[derive(Debug, PartialEq)]
struct Row {
    case: u16,
    tests: BTreeSet<String>,
    remark: String,
}

impl Row {
    /// Reads a line of the page; other lines than rows are none.
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.strip_prefix("| K-")?.strip_suffix('|')?.split('|');
        let case = cells.next()?.trim().parse().ok()?;
        let tests = cells.next()?.split('`').skip(1).step_by(2);
        Some(Self {
            case,
            tests: tests.map(str::to_owned).collect(),
            remark: cells.next().unwrap_or_default().trim().to_owned(),
        })
    }

    fn line(&self) -> String {
        let tests: Vec<_> = self.tests.iter().map(|test| format!("`{test}`")).collect();
        let line = format!(
            "| K-{:03} | {} | {} |",
            self.case,
            tests.join(", "),
            self.remark
        );
        line.replace(" |  |", " | |")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The page, brought up to date first if that was asked for.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let path = root().join("docs/conformance.md");
    let text = fs::read_to_string(&path).unwrap();
    if env::var_os("HOLDFAST_UPDATE").is_none() {
        return text;
    }
    let text = updated(&text);
    fs::write(path, &text).unwrap();
    text
});

fn rows() -> Vec<Row> {
    PAGE.lines().filter_map(Row::parse).collect()
}

/// Returns the source files of the workspace by their path from its root.
fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &Path, within: &str, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, &format!("{within}{name}/"), found);
            } else if name.ends_with(".rs") {
                found.insert(
                    format!("{within}{name}"),
                    fs::read_to_string(&path).unwrap(),
                );
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root(), "", &mut found);
    found
}

/// Finds cases such as `K-036`, `k_036_` and `K-118 to K-121` (`k_118_to_k_121`) in a text.
fn cases_in(text: &str) -> BTreeSet<u16> {
    let text = text.replace("k_", "K-");
    let (mut found, mut before) = (BTreeSet::new(), None::<u16>);
    for part in text.split("K-").skip(1) {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits != 3 {
            before = None;
            continue;
        }
        let case: u16 = part[..digits].parse().unwrap();
        found.extend(before.unwrap_or(case)..=case);
        let next = part[digits..].trim_matches(['_', ' ']);
        before = ["to", "–"].contains(&next).then_some(case);
    }
    found
}

/// Adds the tests of a file that name a case, in their own name or in the documentation above them.
fn tests_in(file: &str, text: &str, tests: &mut Tests) {
    let (mut cases, mut is_test) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            cases.append(&mut cases_in(doc));
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ") {
            let name: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            cases.append(&mut cases_in(&name));
            if is_test || file.starts_with(RULES) {
                for case in &cases {
                    tests
                        .entry(*case)
                        .or_default()
                        .insert(format!("{file}::{name}"));
                }
            }
            (cases, is_test) = (BTreeSet::new(), false);
        } else if line.is_empty() || line.ends_with([';', '{', '}']) {
            (cases, is_test) = (BTreeSet::new(), false);
        }
    }
}

fn tests_that_name_a_case(sources: &BTreeMap<String, String>) -> Tests {
    let mut tests = Tests::new();
    for (file, text) in sources {
        tests_in(file, text, &mut tests);
    }
    tests
}

fn is_there(test: &str, sources: &BTreeMap<String, String>) -> bool {
    test.split_once("::").is_some_and(|(file, name)| {
        sources
            .get(file)
            .is_some_and(|text| text.contains(&format!("fn {name}(")))
    })
}

/// Returns the page with its column of tests made anew. A test that was added by hand stays as long as it is there.
fn updated(page: &str) -> String {
    let sources = sources();
    let tests = tests_that_name_a_case(&sources);
    let lines = page.lines().map(|line| {
        let Some(mut row) = Row::parse(line) else {
            return format!(
                "{line}
"
            );
        };
        row.tests.retain(|test| is_there(test, &sources));
        row.tests
            .extend(tests.get(&row.case).into_iter().flatten().cloned());
        row.line()
            + "
"
    });
    lines.collect()
}

#[test]
fn each_case_has_one_row_with_a_test_or_a_reason() {
    let cases: Vec<u16> = (1..=LAST).filter(|case| !UNUSED.contains(case)).collect();
    assert_eq!(cases.len(), COUNT);
    let rows = rows();
    assert_eq!(rows.iter().map(|row| row.case).collect::<Vec<_>>(), cases);
    for row in rows {
        assert!(
            !row.tests.is_empty() || !row.remark.is_empty(),
            "K-{:03} has neither test nor reason",
            row.case
        );
    }
}

#[test]
fn each_test_on_the_page_is_where_it_says() {
    let sources = sources();
    let gone: Vec<_> = rows()
        .into_iter()
        .flat_map(|row| row.tests)
        .filter(|test| !is_there(test, &sources))
        .collect();
    assert!(gone.is_empty(), "on the page, but gone: {gone:#?}");
}

#[test]
fn each_test_that_names_a_case_is_on_the_page() {
    let mut tests = tests_that_name_a_case(&sources());
    for row in rows() {
        if let Some(tests) = tests.get_mut(&row.case) {
            tests.retain(|test| !row.tests.contains(test));
        }
    }
    tests.retain(|_, tests| !tests.is_empty());
    assert!(
        tests.is_empty(),
        "not on the page (HOLDFAST_UPDATE=1 adds them): {tests:#?}"
    );
}

#[test]
fn cases_are_read_from_names_and_documentation() {
    let source = "
        /// A sentence. (K-034, K-037)
        pub fn not_a_test() {}

        /// What K-118 to K-120 say.
        @test
        #[cfg(unix)]
        async fn k_003_to_k_004_and_k_171_as_a_sentence() {
            let k_1 = \"K-500\";
        }

        @test
        fn names_none() {}
    ";
    // Written so that this file itself is not taken to hold these tests.
    let source = source.replace("@test", "#[test]");
    let mut tests = Tests::new();
    tests_in("a.rs", &source, &mut tests);
    assert_eq!(
        tests.into_keys().collect::<Vec<_>>(),
        [3, 4, 118, 119, 120, 171]
    );
}

#[test]
fn a_row_is_read_as_it_is_written() {
    for line in [
        "| K-036 | `a.rs::k_036_b`, `c.rs::d` | |",
        "| K-037 | | Not yet tested. |",
        "| K-038 | `a.rs::b` | Half of it. |",
    ] {
        assert_eq!(Row::parse(line).unwrap().line(), line);
    }
    assert_eq!(Row::parse("| Case | Tests | Remark |"), None);
}
