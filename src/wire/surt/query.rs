//! The query of a key.

/// An encoded query without session ids, in lower case, its parameters in order.
pub(super) fn canonical(mut query: Vec<u8>) -> Vec<u8> {
    for (name, is_value) in SESSION_IDS {
        query = without(query, name, *is_value);
    }
    query.make_ascii_lowercase();
    if query.len() <= 1 {
        return query;
    }
    let mut parameters: Vec<(&[u8], Option<&[u8]>)> = (query.split(|byte| *byte == b'&'))
        .map(
            |parameter| match parameter.iter().position(|byte| *byte == b'=') {
                Some(at) => (&parameter[..at], Some(&parameter[at + 1..])),
                None => (parameter, None),
            },
        )
        .collect();
    parameters.sort_unstable();
    let mut ordered = Vec::with_capacity(query.len());
    for (number, (name, value)) in parameters.into_iter().enumerate() {
        ordered.extend_from_slice(if number > 0 { b"&" } else { b"" });
        ordered.extend_from_slice(name);
        if let Some(value) = value {
            ordered.push(b'=');
            ordered.extend_from_slice(value);
        }
    }
    ordered
}

/// The length of a value at the start of a text; `None` if there is none.
type IsValue = fn(&[u8]) -> Option<usize>;

/// What is cut out of a query: a name in any case, and its value. The name may be the end of a longer one.
const SESSION_IDS: &[(&[u8], IsValue)] = &[
    (b"jsessionid=", |text| {
        exactly(32, text, u8::is_ascii_alphanumeric)
    }),
    (b"phpsessid=", |text| {
        exactly(32, text, u8::is_ascii_alphanumeric)
    }),
    (b"sid=", |text| exactly(32, text, u8::is_ascii_alphanumeric)),
    (b"aspsessionid", |text| {
        let name = exactly(8, text, u8::is_ascii_alphabetic)?;
        let value = text[name..].strip_prefix(b"=")?;
        Some(name + 1 + exactly(24, value, u8::is_ascii_alphabetic)?)
    }),
    (b"cfid=", |text| {
        let value = parameter(text)?;
        let token = strip_name(&text[value..], TOKEN)?;
        Some(value + TOKEN.len() + parameter(token)?)
    }),
];

/// What follows the value of `cfid`.
const TOKEN: &[u8] = b"&cftoken=";

/// So many such bytes.
fn exactly(count: usize, text: &[u8], is: impl Fn(&u8) -> bool) -> Option<usize> {
    let value = text.get(..count)?;
    value.iter().all(is).then_some(count)
}

/// All up to the next parameter.
fn parameter(text: &[u8]) -> Option<usize> {
    let length = text.iter().position(|byte| *byte == b'&');
    Some(length.unwrap_or(text.len())).filter(|length| *length > 0)
}

fn strip_name<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(rest)
}

/// The query without the last parameter of this name and value, and the `&` behind it.
fn without(mut query: Vec<u8>, name: &[u8], is_value: IsValue) -> Vec<u8> {
    // Whatever the name, an equals sign follows, or a name of a fixed length with one.
    if !query.contains(&b'=') {
        return query;
    }
    // Each occurrence of this name is scanned from to the next parameter, which has to be a token.
    let end = match name {
        b"cfid=" => {
            let is_token = |text: &[u8]| text.eq_ignore_ascii_case(TOKEN);
            query.windows(TOKEN.len()).rposition(is_token)
        }
        _ => Some(query.len()),
    };
    for at in (0..end.unwrap_or(0)).rev() {
        let found = strip_name(&query[at..], name).and_then(is_value);
        let Some(end) = found.map(|length| at + name.len() + length) else {
            continue;
        };
        match query.get(end) {
            None => query.truncate(at),
            Some(b'&') => drop(query.drain(at..=end)),
            Some(_) => continue,
        }
        break;
    }
    query
}
