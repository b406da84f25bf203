//! Derives state types: schema, codecs, stable key hash, heap size.
//!
//! The macros are re-exported by `state-api` (feature `derive`) beside the traits of the same names; the attributes that they
//! read are documented at [`macro@StateType`].
mod input;
mod key;
mod ordered;
mod state_type;

use proc_macro::TokenStream;

/// Derives `state_api::StateType` for a struct or an enum whose fields are state types.
///
/// On the type:
/// - `#[state(rename = "Old")]` stores it under another name than the one in the program;
/// - `#[state(crate = "path")]` names the path of `state_api`, where a crate re-exports it.
///
/// On a variant:
/// - `#[state(rename = "Old")]` stores it under another name.
///
/// On a field:
/// - `#[state(default)]` takes `Default::default()` when older state lacks the field;
/// - `#[state(default = 42)]` takes that expression, evaluated each time;
/// - `#[state(rename = "other")]` stores it under another name;
/// - `#[state(alias = "old")]` reads it from an older name too; may be repeated.
///
/// ```
/// use state_api::{CodecKind, StateType};
///
/// #[derive(Clone, Debug, PartialEq, StateType)]
/// struct Flight {
///     carrier: String,
///     #[state(alias = "dep_delay")]
///     delay: f64,
///     #[state(default = true)]
///     on_time: bool,
/// }
///
/// assert_eq!(
///     Flight::schema().to_string(),
///     "struct Flight{carrier:string,delay:f64,on_time:bool}"
/// );
/// let flight = Flight { carrier: "AA".into(), delay: 1.5, on_time: false };
/// let mut bytes = Vec::new();
/// CodecKind::Compact.encode(&flight, &mut bytes);
/// assert_eq!(CodecKind::Compact.decode_all::<Flight>(&bytes)?, flight);
/// # Ok::<(), state_api::Error>(())
/// ```
///
/// A type that contains itself has no schema:
///
/// ```compile_fail
/// #[derive(Clone, state_api::StateType)]
/// struct Node {
///     next: Option<Box<Node>>,
/// }
/// ```
#[proc_macro_derive(StateType, attributes(state))]
pub fn derive_state_type(input: TokenStream) -> TokenStream {
    expand(input, state_type::expand)
}

/// Derives `state_api::StateKey` for a type that derives `StateType`, `PartialEq` and `Eq`, and whose fields are keys.
///
/// `PartialEq` must be derived too, or compare exactly the fields. A struct of one field hashes as the field does.
///
/// ```
/// use state_api::{StateKey, StateType};
///
/// #[derive(Clone, PartialEq, Eq, StateType, StateKey)]
/// struct Carrier(String);
///
/// assert_eq!(Carrier("AA".into()).stable_hash(), "AA".to_owned().stable_hash());
/// ```
///
/// Floats are not keys:
///
/// ```compile_fail
/// #[derive(Clone, PartialEq, state_api::StateType, state_api::StateKey)]
/// struct Delay(f64);
/// impl Eq for Delay {}
/// ```
#[proc_macro_derive(StateKey, attributes(state))]
pub fn derive_state_key(input: TokenStream) -> TokenStream {
    expand(input, key::expand)
}

/// Derives `state_api::OrderedKey` for a type that derives `StateKey`, `PartialOrd` and `Ord`, and whose fields are ordered
/// keys.
///
/// The order is that of the derived `Ord`: fields, or variants and then fields, in the order of the program.
///
/// ```
/// use state_api::{OrderedKey, StateKey, StateType};
///
/// #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, StateType, StateKey, OrderedKey)]
/// struct Route {
///     from: String,
///     hour: i8,
/// }
///
/// let ordered = |route: Route| {
///     let mut bytes = Vec::new();
///     route.encode_ordered(&mut bytes);
///     bytes
/// };
/// assert!(ordered(Route { from: "EWR".into(), hour: -1 }) < ordered(Route { from: "EWR".into(), hour: 1 }));
/// assert!(ordered(Route { from: "EWR".into(), hour: 9 }) < ordered(Route { from: "JFK".into(), hour: 1 }));
/// ```
#[proc_macro_derive(OrderedKey, attributes(state))]
pub fn derive_ordered_key(input: TokenStream) -> TokenStream {
    expand(input, ordered::expand)
}

fn expand(
    input: TokenStream,
    with: impl Fn(&input::Input) -> proc_macro2::TokenStream,
) -> TokenStream {
    let parsed = syn::parse(input).and_then(|input| input::Input::parse(&input));
    match parsed {
        Ok(input) => with(&input).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
