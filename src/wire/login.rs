//! A user name and a password for HTTP: the Basic scheme (RFC 7617).

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;

use crate::base::sentence::debug_as_sentence;

/// A user name and a password, written `name:password`. They are not shown by [`fmt::Debug`].
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    text: Box<str>,
    /// Length of the name in `text`.
    name: usize,
}

/// Why a text is no login.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginInvalid {
    /// There is no colon, or nothing before it.
    #[error("a login is NAME:PASSWORD")]
    Shape,
    /// It has a control character, or more than 1024 bytes.
    #[error("a login has at most 1024 bytes, without control characters")]
    Text,
}

debug_as_sentence!(LoginInvalid);

impl LoginInvalid {
    /// Stable error code.
    pub const fn code(self) -> &'static str {
        match self {
            LoginInvalid::Shape => "shape",
            LoginInvalid::Text => "text",
        }
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(self) -> bool {
        false
    }
}

/// Most bytes of a name and its password together: servers accept some kilobytes in a header field.
const LENGTH_MAX: usize = 1024;

impl Login {
    /// The user name.
    pub fn name(&self) -> &str {
        &self.text[..self.name]
    }

    /// `name:password`, as it is read. A secret.
    pub fn as_secret(&self) -> &str {
        &self.text
    }

    /// The value of an Authorization field. A secret.
    pub fn authorization(&self) -> String {
        format!("Basic {}", BASE64.encode(self.text.as_bytes()))
    }
}

impl FromStr for Login {
    type Err = LoginInvalid;

    fn from_str(text: &str) -> Result<Self, LoginInvalid> {
        let name = text.find(':').filter(|at| *at > 0);
        let name = name.ok_or(LoginInvalid::Shape)?;
        if text.len() > LENGTH_MAX || text.chars().any(char::is_control) {
            return Err(LoginInvalid::Text);
        }
        Ok(Login {
            text: text.into(),
            name,
        })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_a_name_and_a_password_which_is_never_displayed() {
        let login: Login = "Aladdin:open sesame".parse().expect("a login");
        assert_eq!(login.name(), "Aladdin");
        // RFC 7617, section 2.
        assert_eq!(login.authorization(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{login:?}").contains("open"));
        let colons: Login = "a:b:c".parse().expect("a login");
        assert_eq!(colons.as_secret(), "a:b:c");
        let refused = |text: &str| text.parse::<Login>().expect_err(text);
        assert_eq!(refused("name"), LoginInvalid::Shape);
        assert_eq!(refused(":password"), LoginInvalid::Shape);
        assert_eq!(refused("a:b\r\nX: y"), LoginInvalid::Text);
        assert_eq!(
            refused(&format!("a:{}", "x".repeat(2000))),
            LoginInvalid::Text
        );
    }
}
