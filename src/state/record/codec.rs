//! Numbers and byte strings as the journal stores them.

use super::RecordError;

/// Appends a number: 7 bits a byte, the lowest first; the top bit marks another byte to follow (LEB128).
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number > u64::from(LOW) {
        out.push(number as u8 | MORE);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a number of either sign: 0, −1, 1, −2, … as 0, 1, 2, 3, ….
pub fn put_signed(number: i64, out: &mut Vec<u8>) {
    put_number(((number << 1) ^ (number >> 63)) as u64, out);
}

/// Appends a byte string, after its length.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above appended. `what` names the value in errors.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    /// This many bytes.
    pub fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(RecordError::Truncated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Number of bytes that were not read.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Keys, to the end.
    pub fn keys(&mut self) -> Result<Vec<u64>, RecordError> {
        let (keys, rest) = self.rest.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(RecordError::Truncated("keys"));
        }
        self.rest = rest;
        Ok(keys.iter().copied().map(u64::from_le_bytes).collect())
    }

    /// As many bytes as the array has.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RecordError> {
        let bytes = self.take(N, what)?;
        Ok(bytes.try_into().expect("it has this length"))
    }

    /// One byte.
    pub fn byte(&mut self, what: &'static str) -> Result<u8, RecordError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// A number.
    pub fn number(&mut self, what: &'static str) -> Result<u64, RecordError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & LOW);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & MORE == 0 {
                return Ok(number);
            }
        }
        Err(RecordError::Value(what))
    }

    /// A number that the type can hold.
    pub fn number_as<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, RecordError> {
        T::try_from(self.number(what)?).map_err(|_| RecordError::Value(what))
    }

    /// A number of either sign.
    pub fn signed(&mut self, what: &'static str) -> Result<i64, RecordError> {
        let number = self.number(what)?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A byte string, after its length.
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], RecordError> {
        let length = self.number_as(what)?;
        self.take(length, what)
    }

    /// A text, after its length.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, RecordError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| RecordError::Value(what))
    }

    /// All bytes were read.
    pub fn finish(self) -> Result<(), RecordError> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(RecordError::Trailing(more)),
        }
    }
}

/// The bits of a byte that belong to the number.
const LOW: u8 = 0x7f;
/// The bit of a byte that marks another byte to follow.
const MORE: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: u64, length: usize) {
        let mut bytes = Vec::new();
        put_number(number, &mut bytes);
        assert_eq!(bytes.len(), length, "{number}");
        let mut input = Input::new(&bytes);
        assert_eq!(input.number("n"), Ok(number));
        assert_eq!(input.finish(), Ok(()));
        for cut in 0..length {
            let cut = Input::new(&bytes[..cut]).number("n");
            assert_eq!(cut, Err(RecordError::Truncated("n")));
        }
    }

    #[test]
    fn a_number_takes_one_byte_for_seven_bits() {
        for (number, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3)] {
            check(number, length);
        }
        check(u64::MAX >> 1, 9);
        check(u64::MAX, 10);
    }

    #[test]
    fn a_number_beyond_64_bits_is_an_error() {
        let mut bytes = [0xff; 11];
        let read = |bytes: &[u8]| Input::new(bytes).number("n");
        assert_eq!(read(&bytes), Err(RecordError::Value("n")));
        bytes[9] = 2;
        assert_eq!(read(&bytes), Err(RecordError::Value("n")));
        bytes[9] = 1;
        assert_eq!(read(&bytes), Ok(u64::MAX));
    }

    #[test]
    fn small_numbers_of_either_sign_take_one_byte() {
        for number in [0, -1, 1, -64, 63, i64::MIN, i64::MAX, 64] {
            let mut bytes = Vec::new();
            put_signed(number, &mut bytes);
            assert_eq!(Input::new(&bytes).signed("n"), Ok(number));
            assert_eq!(bytes.len() == 1, (-64..64).contains(&number), "{number}");
        }
    }

    #[test]
    fn a_length_beyond_the_bytes_is_an_error() {
        let mut bytes = Vec::new();
        put_number(u64::MAX, &mut bytes);
        let read = Input::new(&bytes).bytes("text");
        assert_eq!(read, Err(RecordError::Truncated("text")));
        let mut bytes = Vec::new();
        put_bytes(&[0xff], &mut bytes);
        let read = Input::new(&bytes).text("text");
        assert_eq!(read, Err(RecordError::Value("text")));
    }
}
