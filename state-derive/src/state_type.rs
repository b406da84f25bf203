//! The expansion of `#[derive(StateType)]`.
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use crate::input::{Body, Default, Field, Input, Shape, Variant};

pub(crate) fn expand(input: &Input) -> TokenStream {
    let items = [
        constants(input),
        schema(input),
        encode(input),
        decode(input),
        to_value(input),
        from_value(input),
        heap_size(input),
        touch(input),
        in_place(input),
    ];
    input.implement("StateType", &quote!(#(#items)*))
}

fn constants(input: &Input) -> TokenStream {
    let api = &input.api;
    let types: Vec<_> = input.fields().map(|field| &field.ty).collect();
    let fixed_size = match &input.body {
        Body::Struct(_) => quote! {{
            let sum = ::core::option::Option::Some(0usize);
            #(let sum = #api::wire::add_sizes(sum, <#types as #api::StateType>::FIXED_SIZE);)*
            sum
        }},
        // The index of a variant takes one byte below 128.
        Body::Enum(variants) if variants.len() <= 128 && types.is_empty() => {
            quote!(::core::option::Option::Some(1))
        }
        Body::Enum(_) => quote!(::core::option::Option::None),
    };
    quote! {
        const FIXED_SIZE: ::core::option::Option<usize> = #fixed_size;
        const HAS_HEAP: bool = false #(|| <#types as #api::StateType>::HAS_HEAP)*;
    }
}

fn schema(input: &Input) -> TokenStream {
    let api = &input.api;
    let name = &input.name;
    let schema = match &input.body {
        Body::Struct(it) => {
            let fields = schema_fields(input, it);
            quote!(#api::Schema::Struct(#api::StructSchema { name: #name.into(), fields: #fields }))
        }
        Body::Enum(variants) => {
            let variants = variants.iter().map(|variant| {
                let name = &variant.name;
                let fields = schema_fields(input, variant);
                quote!(#api::VariantSchema { name: #name.into(), fields: #fields })
            });
            quote!(#api::Schema::Enum(#api::EnumSchema {
                name: #name.into(),
                variants: ::std::vec![#(#variants),*],
            }))
        }
    };
    quote! {
        fn schema() -> #api::Schema {
            #api::__derive::without_recursion::<Self>(|| #schema)
        }
    }
}

fn schema_fields(input: &Input, variant: &Variant) -> TokenStream {
    let api = &input.api;
    let fields = variant.fields.iter().map(|field| {
        let (name, ty) = (&field.name, &field.ty);
        let default = field.default.as_ref().map(|_| quote!(.with_default()));
        let aliases = &field.aliases;
        quote! {
            #api::Field::new(#name, <#ty as #api::StateType>::schema()) #default #(.with_alias(#aliases))*
        }
    });
    match variant.shape {
        Shape::Unit => quote!(#api::Fields::Unit),
        Shape::Named => quote!(#api::Fields::Named(::std::vec![#(#fields),*])),
        Shape::Positional => quote!(#api::Fields::Positional(::std::vec![#(#fields),*])),
    }
}

/// Calls a method of a field's trait, errors pointing at the field's type.
fn call(input: &Input, field: &Field, method: &str, arguments: &TokenStream) -> TokenStream {
    let (api, ty) = (&input.api, &field.ty);
    let method = syn::Ident::new(method, proc_macro2::Span::call_site());
    quote_spanned!(ty.span()=> <#ty as #api::StateType>::#method(#arguments))
}

/// Matches `self`, an arm per variant.
fn match_self(input: &Input, arm: impl Fn(usize, &Variant) -> TokenStream) -> TokenStream {
    let arms = input.variants().iter().enumerate().map(|(index, variant)| {
        let (pattern, body) = (variant.pattern(), arm(index, variant));
        quote!(#pattern => #body)
    });
    quote!(match self { #(#arms)* })
}

fn encode(input: &Input) -> TokenStream {
    let api = &input.api;
    let body = match_self(input, |index, variant| {
        let index = index as u64;
        let tag = matches!(input.body, Body::Enum(_))
            .then(|| quote!(#api::wire::put_varint(out, #index);));
        let fields = variant.fields.iter().map(|field| {
            let binding = &field.binding;
            call(input, field, "encode", &quote!(#binding, out))
        });
        quote!({ #tag #(#fields;)* })
    });
    quote! {
        #[inline]
        #[allow(unused_variables)]
        fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
            #body
        }
    }
}

fn decode(input: &Input) -> TokenStream {
    let (api, name) = (&input.api, &input.name);
    let construct = |variant: &Variant| {
        variant.construct(|field| {
            let decoded = call(input, field, "decode", &quote!(input));
            quote!(#decoded?)
        })
    };
    let value = match &input.body {
        Body::Struct(it) => construct(it),
        Body::Enum(variants) => {
            let arms = variants.iter().enumerate().map(|(index, variant)| {
                let (index, value) = (index as u64, construct(variant));
                quote!(#index => #value,)
            });
            quote! {
                match #api::wire::get_varint(input)? {
                    #(#arms)*
                    index => return ::core::result::Result::Err(#api::__derive::no_such_index(#name, index)),
                }
            }
        }
    };
    quote! {
        #[inline]
        #[allow(unused_variables)]
        fn decode(input: &mut &[u8]) -> #api::Result<Self> {
            ::core::result::Result::Ok(#value)
        }
    }
}

fn to_value(input: &Input) -> TokenStream {
    let (api, name) = (&input.api, &input.name);
    let body = match_self(input, |_, variant| {
        let names = variant.fields.iter().map(|field| &field.name);
        let values = variant.fields.iter().map(|field| {
            let binding = &field.binding;
            call(input, field, "to_value", &quote!(#binding))
        });
        let fields = quote!(::std::vec![#((::std::borrow::Cow::Borrowed(#names), #values)),*]);
        match input.body {
            Body::Struct(_) => quote!(#api::Value::Record {
                name: ::std::borrow::Cow::Borrowed(#name),
                fields: #fields,
            },),
            Body::Enum(_) => {
                let variant = &variant.name;
                quote!(#api::Value::Variant {
                    name: ::std::borrow::Cow::Borrowed(#name),
                    variant: ::std::borrow::Cow::Borrowed(#variant),
                    fields: #fields,
                },)
            }
        }
    });
    quote! {
        fn to_value(&self) -> #api::Value {
            #body
        }
    }
}

fn from_value(input: &Input) -> TokenStream {
    let (api, name) = (&input.api, &input.name);
    let construct = |variant: &Variant| {
        variant.construct(|field| {
            let (ty, name, aliases) = (&field.ty, &field.name, &field.aliases);
            let names = quote!(&[#name #(, #aliases)*]);
            let default = match &field.default {
                None => return quote!(fields.take::<#ty>(#names)?),
                Some(Default::Trait) => {
                    quote_spanned!(ty.span()=> <#ty as ::core::default::Default>::default)
                }
                Some(Default::Expr(expr)) => quote!(|| -> #ty { #expr }),
            };
            quote!(fields.take_or::<#ty>(#names, #default)?)
        })
    };
    let value = match &input.body {
        Body::Struct(it) => {
            let value = construct(it);
            quote! {
                let mut fields = #api::__derive::FieldValues::of_struct::<Self>(#name, value)?;
                ::core::result::Result::Ok(#value)
            }
        }
        Body::Enum(variants) => {
            let arms = variants.iter().map(|variant| {
                let (name, value) = (&variant.name, construct(variant));
                quote!(#name => #value,)
            });
            quote! {
                let (variant, mut fields) = #api::__derive::FieldValues::of_enum::<Self>(#name, value)?;
                ::core::result::Result::Ok(match &*variant {
                    #(#arms)*
                    other => return ::core::result::Result::Err(#api::__derive::no_such_variant(#name, other)),
                })
            }
        }
    };
    quote! {
        #[allow(unused_variables, unused_mut)]
        fn from_value(value: #api::Value) -> #api::Result<Self> {
            #value
        }
    }
}

fn heap_size(input: &Input) -> TokenStream {
    let body = match_self(input, |_, variant| {
        let sizes = variant.fields.iter().map(|field| {
            let binding = &field.binding;
            call(input, field, "heap_size", &quote!(#binding))
        });
        quote!(0 #(+ #sizes)*,)
    });
    quote! {
        #[inline]
        #[allow(unused_variables)]
        fn heap_size(&self) -> usize {
            #body
        }
    }
}

fn touch(input: &Input) -> TokenStream {
    let body = match_self(input, |_, variant| {
        let bytes = variant.fields.iter().map(|field| {
            let binding = &field.binding;
            call(input, field, "touch", &quote!(#binding))
        });
        quote!(0 #(^ #bytes)*,)
    });
    quote! {
        #[inline]
        #[allow(unused_variables)]
        fn touch(&self) -> u8 {
            #body
        }
    }
}

/// A struct is written to a place of its size if each of its fields can be.
fn in_place(input: &Input) -> TokenStream {
    let Body::Struct(body) = &input.body else {
        return TokenStream::new();
    };
    let api = &input.api;
    let types = input.fields().map(|field| &field.ty);
    let pattern = body.pattern();
    let puts = body.fields.iter().map(|field| {
        let binding = &field.binding;
        quote!(let place = #api::__derive::put_first(#binding, place);)
    });
    quote! {
        const IN_PLACE: bool = true #(&& <#types as #api::StateType>::IN_PLACE)*;

        #[inline]
        #[allow(unused_variables)]
        fn put_in_place(&self, place: &mut [u8]) {
            let #pattern = self;
            #(#puts)*
        }
    }
}
