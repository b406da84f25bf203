use syn::DeriveInput;

use super::Input;

fn refusal(source: &str) -> String {
    let input: DeriveInput = syn::parse_str(source).expect("the test's source parses");
    match Input::parse(&input) {
        Ok(_) => panic!("{source} is taken"),
        Err(error) => error.to_string(),
    }
}

fn takes(source: &str) -> bool {
    let input: DeriveInput = syn::parse_str(source).expect("the test's source parses");
    Input::parse(&input).is_ok()
}

#[test]
fn what_cannot_be_state_is_refused_with_the_reason() {
    for (source, reason) in [
        (
            "struct A<'a>(&'a str);",
            "a lifetime parameter is not possible",
        ),
        ("union A { a: u8 }", "a union can't be state"),
        ("enum A {}", "an enum without variants"),
        ("struct A { next: Option<Box<A>> }", "`A` contains itself"),
        ("struct A(Vec<Self>);", "`A` contains itself"),
        ("enum A { Leaf, Node(Box<(A, u8)>) }", "`A` contains itself"),
    ] {
        let refusal = refusal(source);
        assert!(refusal.contains(reason), "{source}: {refusal}");
    }
}

#[test]
fn a_wrong_attribute_is_refused_with_those_that_exist() {
    for (source, reason) in [
        ("#[state(key)] struct A;", "#[derive(StateType, StateKey)]"),
        (
            "#[state(ranem = \"B\")] struct A;",
            "on a type there are `rename",
        ),
        (
            "struct A { #[state(skip)] a: u8 }",
            "on a field there are `default`",
        ),
        (
            "enum A { #[state(default)] B }",
            "on a variant there is `rename",
        ),
        (
            "struct A { #[state(default, default = 3)] a: u8 }",
            "given twice",
        ),
        (
            "struct A { #[state(rename = \"\")] a: u8 }",
            "a name can't be empty",
        ),
        ("struct A(#[state(rename = \"a\")] u8);", "can't be renamed"),
    ] {
        let refusal = refusal(source);
        assert!(refusal.contains(reason), "{source}: {refusal}");
    }
}

#[test]
fn two_things_stored_under_one_name_are_refused() {
    for (source, reason) in [
        (
            "struct A { a: u8, #[state(rename = \"a\")] b: u8 }",
            "two fields are stored as \"a\"",
        ),
        (
            "struct A { a: u8, #[state(alias = \"a\")] b: u8 }",
            "two fields are stored as \"a\"",
        ),
        (
            "enum A { B, #[state(rename = \"B\")] C }",
            "two variants are stored as \"B\"",
        ),
    ] {
        let refusal = refusal(source);
        assert!(refusal.contains(reason), "{source}: {refusal}");
    }
}

#[test]
fn another_type_of_the_same_name_and_an_opaque_part_are_no_recursion() {
    assert!(takes("struct A(other::A);"));
    assert!(takes("struct A { children: Opaque<Vec<A>> }"));
    assert!(takes("struct A<T>(T);"));
}
