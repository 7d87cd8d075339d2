//! `Debug` of errors: their sentence, since that is what `main` prints of an error that it returns.

use std::error::Error;
use std::fmt;

/// Implements `Debug` of errors by [`write`].
macro_rules! debug_as_sentence {
    ($($error:ty),+) => {
        $(impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::base::sentence::write(self, f)
            }
        })+
    };
}
pub(crate) use debug_as_sentence;

/// Writes what an error says, and after it what those of its causes say that is not in there.
pub fn write(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(next) = cause else { break };
        let more = next.to_string();
        if !sentence.contains(&more) {
            sentence += ": ";
            sentence += &more;
        }
        cause = next.source();
    }
    f.write_str(&sentence)
}

/// Most causes of causes that are written.
const CAUSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::io;

    #[derive(thiserror::Error)]
    enum Fault {
        #[error("cannot read the file")]
        Read(#[source] io::Error),
        #[error("invalid: {0}")]
        Invalid(#[source] io::Error),
        #[error(transparent)]
        Same(#[from] io::Error),
        #[error("the file is empty")]
        Empty,
    }
    debug_as_sentence!(Fault);

    #[test]
    fn an_error_is_printed_as_its_sentence_with_causes_that_are_not_in_it() {
        let cause = || io::Error::other("no such disk");
        let check = |fault: Fault, expected: &str| {
            assert_eq!(format!("{fault:?}"), expected);
            assert_eq!(format!("{fault:#?}"), expected);
        };
        check(Fault::Read(cause()), "cannot read the file: no such disk");
        check(Fault::Invalid(cause()), "invalid: no such disk");
        check(Fault::Same(cause()), "no such disk");
        check(Fault::Empty, "the file is empty");
    }
}
