//! The expansion of `#[derive(OrderedKey)]`.
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use crate::input::{Body, Input, Variant};

/// The most variants whose index fits the two bytes it has.
const MAX_VARIANTS: usize = 1 << 16;

pub(crate) fn expand(input: &Input) -> TokenStream {
    if let Err(error) = check(input) {
        return error.into_compile_error();
    }
    let (encode, decode) = (encode(input), decode(input));
    let items = quote!(#encode #decode);
    input.implement("OrderedKey", &items)
}

fn check(input: &Input) -> syn::Result<()> {
    if let Some(span) = input
        .variants()
        .iter()
        .find_map(|variant| variant.discriminant)
    {
        return Err(syn::Error::new(
            span,
            "an explicit discriminant changes the order of `Ord`; put the variants of an ordered key in their order instead",
        ));
    }
    if input.variants().len() > MAX_VARIANTS {
        return Err(syn::Error::new(
            input.ident.span(),
            "an ordered key has at most 65,536 variants",
        ));
    }
    Ok(())
}

/// Writes the index of a variant: one byte where that is enough for all of them, else two, big-endian.
fn index_bytes(input: &Input, index: usize) -> TokenStream {
    if input.variants().len() <= 1 << 8 {
        let index = index as u8;
        quote!([#index])
    } else {
        let (high, low) = ((index >> 8) as u8, index as u8);
        quote!([#high, #low])
    }
}

fn encode(input: &Input) -> TokenStream {
    let api = &input.api;
    let arms = input.variants().iter().enumerate().map(|(index, variant)| {
        let tag = matches!(input.body, Body::Enum(_)).then(|| {
            let bytes = index_bytes(input, index);
            quote!(out.extend_from_slice(&#bytes);)
        });
        let pattern = variant.pattern();
        let fields = variant.fields.iter().map(|field| {
            let (ty, binding) = (&field.ty, &field.binding);
            quote_spanned!(ty.span()=> <#ty as #api::OrderedKey>::encode_ordered(#binding, out))
        });
        quote!(#pattern => { #tag #(#fields;)* })
    });
    quote! {
        #[allow(unused_variables)]
        fn encode_ordered(&self, out: &mut ::std::vec::Vec<u8>) {
            match self { #(#arms)* }
        }
    }
}

fn decode(input: &Input) -> TokenStream {
    let (api, name) = (&input.api, &input.name);
    let construct = |variant: &Variant| {
        variant.construct(|field| {
            let ty = &field.ty;
            quote_spanned!(ty.span()=> <#ty as #api::OrderedKey>::decode_ordered(input)?)
        })
    };
    let value = match &input.body {
        Body::Struct(it) => construct(it),
        Body::Enum(variants) => {
            let arms = variants.iter().enumerate().map(|(index, variant)| {
                let (bytes, value) = (index_bytes(input, index), construct(variant));
                quote!(#bytes => #value,)
            });
            quote! {
                match #api::wire::take_array(input)? {
                    #(#arms)*
                    #[allow(unreachable_patterns)]
                    index => return ::core::result::Result::Err(#api::__derive::no_such_ordered_index(#name, &index)),
                }
            }
        }
    };
    quote! {
        #[allow(unused_variables)]
        fn decode_ordered(input: &mut &[u8]) -> #api::Result<Self> {
            ::core::result::Result::Ok(#value)
        }
    }
}
