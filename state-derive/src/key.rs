//! The expansion of `#[derive(StateKey)]`.
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use crate::input::Input;

pub(crate) fn expand(input: &Input) -> TokenStream {
    let api = &input.api;
    let items = if let Some(field) = input.only_field() {
        let (ty, member) = (&field.ty, &field.member);
        let key = quote_spanned!(ty.span()=> <#ty as #api::StateKey>);
        quote! {
            type Stored = Self;

            const FLINK_HASH: bool = #key::FLINK_HASH;

            #[inline]
            fn stable_hash(&self) -> u64 {
                #key::stable_hash(&self.#member)
            }

            #[inline]
            fn flink_hash(&self) -> ::core::option::Option<i32> {
                #key::flink_hash(&self.#member)
            }
        }
    } else {
        let checks = input.fields().map(|field| {
            let ty = &field.ty;
            quote_spanned!(ty.span()=> #api::__derive::is_key::<#ty>();)
        });
        quote! {
            type Stored = Self;

            #[inline]
            fn stable_hash(&self) -> u64 {
                #(#checks)*
                #api::hash::hash_encoded(self)
            }
        }
    };
    input.implement("StateKey", &items)
}
