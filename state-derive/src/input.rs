//! Reads the type that a derive stands on into the model that the expansions share.
use std::collections::HashSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, GenericParam, Generics, Ident, LitStr, Path, Result,
    Token, Type,
};

/// A struct or an enum.
pub(crate) struct Input {
    /// The type.
    pub(crate) ident: Ident,
    /// Its name as stored.
    pub(crate) name: String,
    generics: Generics,
    /// The path of `state_api`.
    pub(crate) api: Path,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Struct(Variant),
    Enum(Vec<Variant>),
}

/// A struct's fields, or one variant of an enum.
pub(crate) struct Variant {
    /// What constructs it: `Self` or `Self::Variant`.
    pub(crate) path: TokenStream,
    /// Its name as stored.
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) fields: Vec<Field>,
    /// Where an explicit discriminant stands, which would decide the order.
    pub(crate) discriminant: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Unit,
    Named,
    Positional,
}

pub(crate) struct Field {
    /// The field's name, or its position.
    pub(crate) member: syn::Member,
    /// The variable that a pattern binds it to.
    pub(crate) binding: Ident,
    /// Its name as stored.
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) default: Option<Default>,
    pub(crate) ty: Type,
}

pub(crate) enum Default {
    Trait,
    Expr(Box<Expr>),
}

impl Input {
    pub(crate) fn parse(input: &DeriveInput) -> Result<Self> {
        let mut name = None;
        let mut api = None;
        attributes(&input.attrs, |meta| {
            if meta.path.is_ident("rename") {
                set(&mut name, &meta, non_empty(&meta)?)
            } else if meta.path.is_ident("crate") {
                let path: LitStr = meta.value()?.parse()?;
                set(&mut api, &meta, path.parse::<Path>()?)
            } else if meta.path.is_ident("key") || meta.path.is_ident("ordered") {
                Err(meta.error("write #[derive(StateType, StateKey)] for a key, and OrderedKey for an ordered one"))
            } else {
                Err(meta.error(
                    "unknown attribute; on a type there are `rename = \"…\"` and `crate = \"…\"`",
                ))
            }
        })?;
        for param in &input.generics.params {
            if let GenericParam::Lifetime(lifetime) = param {
                return Err(Error::new(
                    lifetime.span(),
                    "state types own what they hold: a lifetime parameter is not possible",
                ));
            }
        }
        let body = match &input.data {
            Data::Struct(data) => Body::Struct(Variant::parse(
                quote!(Self),
                &input.ident,
                None,
                &data.fields,
            )?),
            Data::Enum(data) => Body::Enum(parse_variants(&input.ident, data)?),
            Data::Union(data) => {
                return Err(Error::new(
                    data.union_token.span(),
                    "a union can't be state: nothing says which field is set",
                ));
            }
        };
        let parsed = Self {
            name: name.unwrap_or_else(|| input.ident.unraw().to_string()),
            ident: input.ident.clone(),
            generics: input.generics.clone(),
            api: match api {
                Some(path) => path,
                None => syn::parse_str("::state_api")?,
            },
            body,
        };
        parsed.refuse_recursion()?;
        Ok(parsed)
    }

    pub(crate) fn variants(&self) -> &[Variant] {
        match &self.body {
            Body::Struct(fields) => std::slice::from_ref(fields),
            Body::Enum(variants) => variants,
        }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.variants().iter().flat_map(|variant| &variant.fields)
    }

    /// Returns the one field of a struct that has just one.
    pub(crate) fn only_field(&self) -> Option<&Field> {
        match &self.body {
            Body::Struct(it) => match it.fields.as_slice() {
                [one] => Some(one),
                _ => None,
            },
            Body::Enum(_) => None,
        }
    }

    /// Wraps items in `impl<…> Trait for Type<…>`, each type parameter bound by the trait.
    pub(crate) fn implement(&self, name: &str, items: &TokenStream) -> TokenStream {
        let api = &self.api;
        let trait_name = Ident::new(name, Span::call_site());
        let mut generics = self.generics.clone();
        let params: Vec<Ident> = generics
            .type_params()
            .map(|param| param.ident.clone())
            .collect();
        if !params.is_empty() {
            let clause = generics.make_where_clause();
            for param in params {
                clause
                    .predicates
                    .push(syn::parse_quote!(#param: #api::#trait_name));
            }
        }
        let (params, arguments, clause) = generics.split_for_impl();
        let ident = &self.ident;
        quote! {
            #[automatically_derived]
            impl #params #api::#trait_name for #ident #arguments #clause {
                #items
            }
        }
    }

    /// Refuses a type that names itself in a field, whose schema would have no end.
    fn refuse_recursion(&self) -> Result<()> {
        for field in self.fields() {
            if mentions(field.ty.to_token_stream(), &self.ident) {
                return Err(Error::new(
                    field.ty.span(),
                    format!(
                        "`{}` contains itself, so its schema has no end: wrap the recursive part in `Opaque`",
                        self.ident
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Says whether a type names an identifier that no path leads to, outside of `Opaque<…>`.
fn mentions(ty: TokenStream, ident: &Ident) -> bool {
    let mut behind_path = false;
    for token in ty {
        match token {
            TokenTree::Ident(found) if found == "Opaque" => return false,
            TokenTree::Ident(found) if !behind_path && (found == *ident || found == "Self") => {
                return true;
            }
            TokenTree::Group(group) if mentions(group.stream(), ident) => return true,
            TokenTree::Punct(punct) => {
                behind_path = punct.as_char() == ':';
                continue;
            }
            _ => {}
        }
        behind_path = false;
    }
    false
}

fn parse_variants(owner: &Ident, data: &syn::DataEnum) -> Result<Vec<Variant>> {
    if data.variants.is_empty() {
        return Err(Error::new(
            owner.span(),
            "an enum without variants has no values to store",
        ));
    }
    let mut names = HashSet::new();
    let mut variants = Vec::new();
    for variant in &data.variants {
        let mut name = None;
        attributes(&variant.attrs, |meta| {
            if meta.path.is_ident("rename") {
                set(&mut name, &meta, non_empty(&meta)?)
            } else {
                Err(meta.error("unknown attribute; on a variant there is `rename = \"…\"`"))
            }
        })?;
        let ident = &variant.ident;
        let mut parsed = Variant::parse(quote!(Self::#ident), ident, name, &variant.fields)?;
        parsed.discriminant = variant.discriminant.as_ref().map(|(_, value)| value.span());
        if !names.insert(parsed.name.clone()) {
            return Err(Error::new(
                ident.span(),
                format!("two variants are stored as {:?}", parsed.name),
            ));
        }
        variants.push(parsed);
    }
    Ok(variants)
}

impl Variant {
    fn parse(
        path: TokenStream,
        ident: &Ident,
        name: Option<String>,
        fields: &syn::Fields,
    ) -> Result<Self> {
        let shape = match fields {
            syn::Fields::Unit => Shape::Unit,
            syn::Fields::Named(_) => Shape::Named,
            syn::Fields::Unnamed(_) => Shape::Positional,
        };
        let parsed = fields.iter().enumerate();
        let parsed: Vec<Field> = parsed
            .map(|(index, field)| Field::parse(index, field))
            .collect::<Result<_>>()?;
        let mut names = HashSet::new();
        for (field, source) in parsed.iter().zip(fields) {
            for name in std::iter::once(&field.name).chain(&field.aliases) {
                if !names.insert(name) {
                    return Err(Error::new(
                        source.span(),
                        format!("two fields are stored as {name:?}"),
                    ));
                }
            }
        }
        Ok(Self {
            path,
            name: name.unwrap_or_else(|| ident.unraw().to_string()),
            shape,
            fields: parsed,
            discriminant: None,
        })
    }

    /// Returns a pattern that binds each field to its binding.
    pub(crate) fn pattern(&self) -> TokenStream {
        let path = &self.path;
        let members = self.fields.iter().map(|field| &field.member);
        let bindings = self.fields.iter().map(|field| &field.binding);
        // Braces with positions as names are good for every shape.
        quote!(#path { #(#members: #bindings),* })
    }

    /// Returns an expression that builds it, each field by an expression that may fail.
    pub(crate) fn construct(&self, each: impl Fn(&Field) -> TokenStream) -> TokenStream {
        let path = &self.path;
        let members = self.fields.iter().map(|field| &field.member);
        let values = self.fields.iter().map(each);
        quote!(#path { #(#members: #values),* })
    }
}

impl Field {
    fn parse(index: usize, field: &syn::Field) -> Result<Self> {
        let (mut name, mut aliases, mut default) = (None, Vec::new(), None);
        attributes(&field.attrs, |meta| {
            if meta.path.is_ident("rename") && field.ident.is_none() {
                Err(meta
                    .error("a field by position is stored by its position and can't be renamed"))
            } else if meta.path.is_ident("rename") {
                set(&mut name, &meta, non_empty(&meta)?)
            } else if meta.path.is_ident("alias") {
                aliases.push(non_empty(&meta)?);
                Ok(())
            } else if meta.path.is_ident("default") {
                let value = if meta.input.peek(Token![=]) {
                    Default::Expr(Box::new(meta.value()?.parse()?))
                } else {
                    Default::Trait
                };
                set(&mut default, &meta, value)
            } else {
                Err(meta.error(
                    "unknown attribute; on a field there are `default`, `default = …`, `rename = \"…\"` and `alias = \"…\"`",
                ))
            }
        })?;
        let member = match &field.ident {
            Some(ident) => syn::Member::Named(ident.clone()),
            None => syn::Member::Unnamed(index.into()),
        };
        let written = match &field.ident {
            Some(ident) => ident.unraw().to_string(),
            None => index.to_string(),
        };
        Ok(Self {
            member,
            binding: format_ident!("field_{index}"),
            name: name.unwrap_or(written),
            aliases,
            default,
            ty: field.ty.clone(),
        })
    }
}

fn attributes(
    attrs: &[Attribute],
    mut each: impl FnMut(ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    attrs
        .iter()
        .filter(|attr| attr.path().is_ident("state"))
        .try_for_each(|attr| attr.parse_nested_meta(&mut each))
}

fn non_empty(meta: &ParseNestedMeta<'_>) -> Result<String> {
    let text: LitStr = meta.value()?.parse()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), "a name can't be empty"));
    }
    Ok(text.value())
}

fn set<T>(slot: &mut Option<T>, meta: &ParseNestedMeta<'_>, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(meta.error("given twice"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
