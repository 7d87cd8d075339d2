//! The public parts of an item, one line each.

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, TraitItem, Visibility};

use super::modules::is_hidden;

/// The lines of an item under this path.
pub fn item(path: &str, item: &Item) -> Vec<String> {
    let mut lines = Vec::new();
    match item {
        Item::Const(item) => lines.push(format!("const {path}: {}", text(&item.ty))),
        Item::Static(item) => lines.push(format!("static {path}: {}", text(&item.ty))),
        Item::Fn(item) => lines.push(format!("fn {}", signature(path, &item.sig))),
        Item::Type(item) => lines.push(format!("type {path} = {}", text(&item.ty))),
        Item::Struct(item) => {
            let generics = text(&item.generics);
            lines.push(format!("struct {path}{generics}{}", openness(&item.attrs)));
            lines.extend(fields(path, &item.fields, false));
            lines.extend(derived(path, &item.attrs));
        }
        Item::Enum(item) => {
            lines.push(format!("enum {path}{}", openness(&item.attrs)));
            for variant in item.variants.iter().filter(|one| !is_hidden(&one.attrs)) {
                let own = format!("{path}::{}", variant.ident);
                lines.extend(fields(&own, &variant.fields, true));
                lines.push(own);
            }
            lines.extend(derived(path, &item.attrs));
        }
        Item::Trait(item) => {
            let above = text(&item.supertraits);
            lines.push(format!("trait {path}: {above}"));
            for inner in &item.items {
                match inner {
                    TraitItem::Fn(function) if !is_hidden(&function.attrs) => {
                        let own = format!("{path}::{}", function.sig.ident);
                        let given = if function.default.is_some() {
                            " { … }"
                        } else {
                            ""
                        };
                        lines.push(format!("{}{given}", signature(&own, &function.sig)));
                    }
                    TraitItem::Type(own) => lines.push(format!("type {path}::{}", own.ident)),
                    TraitItem::Const(own) => lines.push(format!("const {path}::{}", own.ident)),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    lines
}

/// The lines of a block of functions, or of a trait, of the type under this path.
pub fn block(path: &str, block: &ItemImpl) -> Vec<String> {
    if is_hidden(&block.attrs) {
        return Vec::new();
    }
    if let Some((_, of, _)) = &block.trait_ {
        let own = text(&block.self_ty);
        let arguments = own
            .split_once('<')
            .map_or(String::new(), |(_, rest)| format!("<{rest}"));
        return vec![format!("impl {} for {path}{arguments}", text(of))];
    }
    let is_pub = |vis: &Visibility| matches!(vis, Visibility::Public(_));
    let shown = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) if is_pub(&function.vis) && !is_hidden(&function.attrs) => {
            let own = format!("{path}::{}", function.sig.ident);
            Some(signature(&own, &function.sig))
        }
        ImplItem::Const(item) if is_pub(&item.vis) && !is_hidden(&item.attrs) => {
            Some(format!("const {path}::{}: {}", item.ident, text(&item.ty)))
        }
        _ => None,
    });
    shown.collect()
}

/// A function's name in full, with what it takes and gives.
fn signature(path: &str, signature: &syn::Signature) -> String {
    let whole = text(signature);
    let (before, after) = whole.split_once("fn ").expect("a function");
    let after = after
        .strip_prefix(&signature.ident.to_string())
        .expect("its name");
    format!("{before}{path}{after}")
}

fn fields(path: &str, fields: &Fields, all: bool) -> Vec<String> {
    let shown = fields.iter().enumerate().filter(|(_, field)| {
        (all || matches!(field.vis, Visibility::Public(_))) && !is_hidden(&field.attrs)
    });
    let lines = shown.map(|(number, field)| {
        let name = field
            .ident
            .as_ref()
            .map_or(number.to_string(), ToString::to_string);
        format!("{path}::{name}: {}", text(&field.ty))
    });
    lines.collect()
}

/// The traits that are derived.
fn derived(path: &str, attrs: &[Attribute]) -> Vec<String> {
    let mut lines = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("derive")) {
        let nested = attr.parse_nested_meta(|meta| {
            lines.push(format!("impl {} for {path}", text(&meta.path)));
            Ok(())
        });
        nested.expect("a list of names");
    }
    lines
}

/// Whether more may be added without breaking others.
fn openness(attrs: &[Attribute]) -> &'static str {
    match attrs
        .iter()
        .any(|attr| attr.path().is_ident("non_exhaustive"))
    {
        true => " (non-exhaustive)",
        false => "",
    }
}

/// The source of something, with the spaces that people write.
fn text(of: &impl ToTokens) -> String {
    let mut text = of.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        ("- >", "->"),
        ("->", " -> "),
        (" ,", ","),
        (",)", ")"),
        (", )", ")"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        (" : ", ": "),
        (" ;", ";"),
        ("[ ", "["),
        (" ]", "]"),
        ("' ", "'"),
        ("  ", " "),
        ("->(", "-> ("),
        (",>", ">"),
        ("  ", " "),
    ] {
        text = text.replace(from, to);
    }
    text
}
