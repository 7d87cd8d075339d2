//! Reads until when a certificate is valid (RFC 5280, section 4.1.2.5), and nothing else of it.

use crate::base::time::Wall;

/// When a certificate in DER expires; `None` if it is malformed before that, or if that is after the year 2500.
pub fn expires(certificate: &[u8]) -> Option<Wall> {
    let (certificate, _) = value(certificate, SEQUENCE)?;
    let (mut rest, _) = value(certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        (_, rest) = value(rest, VERSION)?;
    }
    // Serial number, algorithm of the signature, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = value(rest, tag)?;
    }
    let (validity, _) = value(rest, SEQUENCE)?;
    let first = *validity.first()?;
    let (_, rest) = value(validity, first)?;
    let tag = *rest.first()?;
    let (text, _) = value(rest, tag)?;
    time(text, tag)
}

/// The contents of the first value, which has this tag, and what follows it.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (own, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short if short < 0x80 => (usize::from(short), rest),
        // Certificates are shorter than 16 MiB.
        long => {
            let count = usize::from(long & 0x7f);
            let octets = rest.get(..count).filter(|_| (1..=3).contains(&count))?;
            let length = octets
                .iter()
                .fold(0, |sum, octet| sum << 8 | usize::from(*octet));
            (length, &rest[count..])
        }
    };
    (*own == tag && length <= rest.len()).then(|| rest.split_at(length))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(text: &[u8], tag: u8) -> Option<Wall> {
    let digits = text.strip_suffix(b"Z")?;
    let mut numbers = digits.chunks(2).map(|pair| match pair {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(u32::from((a - b'0') * 10 + (b - b'0'))),
        _ => None,
    });
    let mut next = || numbers.next().flatten();
    let year = match tag {
        UTC_TIME => {
            let year = next()?;
            // RFC 5280, section 4.1.2.5.1.
            if year < 50 { 2000 + year } else { 1900 + year }
        }
        GENERALIZED_TIME => next()? * 100 + next()?,
        _ => return None,
    };
    let [month, day, hour, minute, second] = [next()?, next()?, next()?, next()?, next()?];
    Wall::from_civil((year.into(), month, day), (hour, minute, second))
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which certificates of version 1 do not have.
const VERSION: u8 = 0xa0;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, date_time_ymd};
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    /// A certificate that is valid until this day.
    fn certificate(year: i32) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(1970, 1, 1);
        params.not_after = date_time_ymd(year, 2, 28);
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.der().to_vec()
    }

    #[test]
    fn the_end_of_validity_is_that_which_another_reader_sees() {
        // Before and after the year in which the form of times changes.
        for year in [1999, 2026, 2049, 2050, 2051, 2200] {
            let der = certificate(year);
            let (_, theirs) = X509Certificate::from_der(&der).expect("a certificate");
            let theirs = theirs.validity().not_after.timestamp();
            let ours = expires(&der).expect("a time");
            assert_eq!(ours.unix_seconds() as i64, theirs, "{year}");
        }
    }

    #[test]
    fn every_cut_and_change_of_a_certificate_is_read_without_a_panic() {
        let der = certificate(2030);
        let whole = expires(&der);
        for end in 0..der.len() {
            assert_eq!(expires(&der[..end]), None, "{end}");
            for value in [0, 0x7f, 0x80, 0x83, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[end] = value;
                let _ = expires(&changed);
            }
        }
        assert!(whole.is_some());
    }
}
