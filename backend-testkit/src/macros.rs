/// Makes a test of each rule and mode for one backend; the argument is an expression that makes a
/// [`BackendFactory`](state_api::BackendFactory).
///
/// The tests are in a module `conformance`, or in one of another name:
///
/// ```
/// backend_testkit::conformance!(backend_testkit::ReferenceBackend);
/// backend_testkit::conformance!(mod again => backend_testkit::ReferenceBackend);
/// ```
///
/// A test is named by area, rule and mode, such as `conformance::value::entries_are_counted::scaled_up`. A strategy for live
/// tables or a byte store without a factory of its own is wrapped in [`LiveBackend`](crate::LiveBackend) or
/// [`ByteBackend`](crate::ByteBackend).
#[macro_export]
macro_rules! conformance {
    (mod $name:ident => $factory:expr $(,)?) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "the expression may name what is in scope where the macro is called")]
            use super::*;

            fn factory() -> ::std::sync::Arc<dyn $crate::__private::BackendFactory> {
                ::std::sync::Arc::new($factory)
            }

            $crate::__rules!([$crate::__tests] []);

            #[test]
            fn model() {
                $crate::model::run(&[factory()], $crate::model::Settings::from_env());
            }

            #[test]
            fn model_beside_the_reference() {
                let reference = ::std::sync::Arc::new($crate::ReferenceBackend);
                $crate::model::run(&[factory(), reference], $crate::model::Settings::from_env().other_seed());
            }
        }
    };
    ($factory:expr $(,)?) => {
        $crate::conformance!(mod conformance => $factory);
    };
}

/// Makes a module per area and rule with a test per mode out of the table of rules.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([] $($area:ident $modes:ident { $($rule:ident)* })*) => {
        $(mod $area {
            $(mod $rule {
                $crate::__modes!($modes $area $rule);
            })*
        })*
    };
}

/// Makes a test of a rule for each mode.
#[doc(hidden)]
#[macro_export]
macro_rules! __modes {
    (EVERY $area:ident $rule:ident) => {
        $crate::__modes!(@ $area $rule
            direct Direct, restored Restored, savepoint Savepoint, incremental Incremental,
            scaled_up ScaledUp, scaled_down ScaledDown);
    };
    (RESTORING $area:ident $rule:ident) => {
        $crate::__modes!(@ $area $rule
            restored Restored, savepoint Savepoint, scaled_up ScaledUp, scaled_down ScaledDown);
    };
    (ONCE $area:ident $rule:ident) => {
        $crate::__modes!(@ $area $rule direct Direct);
    };
    (@ $area:ident $rule:ident $($test:ident $mode:ident),*) => {
        $(#[test]
        fn $test() {
            $crate::run(super::super::factory(), $crate::Mode::$mode, $crate::rules::$area::$rule);
        })*
    };
}

/// Makes a test of each rule of [`ByteStore`](state_api::ByteStore) for one store; the argument is a function that makes an
/// empty `Box<dyn ByteStore>`.
///
/// ```
/// backend_testkit::byte_store_conformance!(|| Box::new(backend_testkit::ReferenceStore::new()));
/// ```
#[macro_export]
macro_rules! byte_store_conformance {
    (mod $name:ident => $make:expr $(,)?) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "the expression may name what is in scope where the macro is called")]
            use super::*;

            fn make() -> ::std::boxed::Box<dyn $crate::__private::ByteStore> {
                let make: fn() -> ::std::boxed::Box<dyn $crate::__private::ByteStore> = $make;
                make()
            }

            $crate::__store_rules!([$crate::__store_tests] []);
        }
    };
    ($make:expr $(,)?) => {
        $crate::byte_store_conformance!(mod byte_store => $make);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ([] $($rule:ident)*) => {
        $(#[test]
        fn $rule() {
            $crate::store_rules::$rule(&make);
        })*
    };
}
