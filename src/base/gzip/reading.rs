//! Reads the gzip members of a file one after another, and where each is, in bounded memory.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::{Crc, Decompress, FlushDecompress, Status};

/// The members of a file, each a stream of its own: [`Read`] and [`BufRead`] have the content of the present one,
/// up to its end.
#[derive(Debug)]
pub struct MemberReader<R> {
    file: R,
    /// What was read of the file and is not decoded yet is at `from..until`.
    input: Box<[u8]>,
    from: usize,
    until: usize,
    /// Offset in the file of the byte at `from`.
    offset: u64,
    inflate: Decompress,
    /// What was decoded and is not taken yet is at `taken..decoded`.
    output: Box<[u8]>,
    taken: usize,
    decoded: usize,
    crc: Crc,
    is_in_member: bool,
}

impl<R: Read> MemberReader<R> {
    /// The file is read from its start, and before the first member.
    pub fn new(file: R) -> Self {
        MemberReader {
            file,
            input: vec![0; INPUT].into(),
            from: 0,
            until: 0,
            offset: 0,
            inflate: Decompress::new(false),
            output: vec![0; OUTPUT].into(),
            taken: 0,
            decoded: 0,
            crc: Crc::new(),
            is_in_member: false,
        }
    }

    /// Begins the next member, behind all of the present one. Returns its offset; `None` at the end of the file.
    ///
    /// # Errors
    /// The rest of the present member is damaged, or another begins with a wrong header, or the file cannot be
    /// read.
    pub fn next_member(&mut self) -> io::Result<Option<u64>> {
        self.skip_rest()?;
        if self.from == self.until && self.read_more()? == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        self.read_header()?;
        self.inflate.reset(false);
        self.crc.reset();
        self.is_in_member = true;
        Ok(Some(offset))
    }

    /// Skips the rest of the present member. Returns the offset of its end.
    ///
    /// # Errors
    /// As [`MemberReader::next_member`].
    pub fn skip_rest(&mut self) -> io::Result<u64> {
        while !self.fill_buf()?.is_empty() {
            self.taken = self.decoded;
        }
        Ok(self.offset)
    }

    /// RFC 1952, 2.3.
    fn read_header(&mut self) -> io::Result<()> {
        let mut head = [0; 10];
        self.read_exactly(&mut head)?;
        let [0x1f, 0x8b, 8, flags, ..] = head else {
            return Err(damage("no gzip member begins here"));
        };
        if flags & RESERVED != 0 {
            return Err(damage("a gzip header has unknown flags"));
        }
        if flags & EXTRA != 0 {
            let mut length = [0; 2];
            self.read_exactly(&mut length)?;
            for _ in 0..u16::from_le_bytes(length) {
                self.read_byte()?;
            }
        }
        for text in [NAME, COMMENT] {
            while flags & text != 0 && self.read_byte()? != 0 {}
        }
        if flags & HEADER_CRC != 0 {
            self.read_exactly(&mut [0; 2])?;
        }
        Ok(())
    }

    /// The checksum and the length at the end of a member.
    fn read_trailer(&mut self) -> io::Result<()> {
        let mut trailer = [0; 8];
        self.read_exactly(&mut trailer)?;
        let expected = [
            self.crc.sum().to_le_bytes(),
            self.crc.amount().to_le_bytes(),
        ];
        match trailer == *expected.as_flattened() {
            true => Ok(()),
            false => Err(damage("a gzip member has a wrong checksum")),
        }
    }

    fn read_exactly(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        for byte in bytes {
            *byte = self.read_byte()?;
        }
        Ok(())
    }

    fn read_byte(&mut self) -> io::Result<u8> {
        if self.from == self.until && self.read_more()? == 0 {
            return Err(cut());
        }
        let byte = self.input[self.from];
        self.from += 1;
        self.offset += 1;
        Ok(byte)
    }

    /// Reads more of the file once all of its bytes were decoded; 0 at its end.
    fn read_more(&mut self) -> io::Result<usize> {
        (self.from, self.until) = (0, 0);
        loop {
            match self.file.read(&mut self.input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => {
                    self.until = read?;
                    return Ok(self.until);
                }
            }
        }
    }

    /// Decodes more once all that was decoded is taken.
    fn decode(&mut self) -> io::Result<()> {
        (self.taken, self.decoded) = (0, 0);
        while self.is_in_member && self.decoded == 0 {
            if self.from == self.until && self.read_more()? == 0 {
                return Err(cut());
            }
            let before = (self.inflate.total_in(), self.inflate.total_out());
            let input = &self.input[self.from..self.until];
            let none = FlushDecompress::None;
            let status = self.inflate.decompress(input, &mut self.output, none);
            let status = status.map_err(|_| damage("a gzip member is damaged"))?;
            let used = self.inflate.total_in() - before.0;
            self.from += used as usize;
            self.offset += used;
            self.decoded = (self.inflate.total_out() - before.1) as usize;
            self.crc.update(&self.output[..self.decoded]);
            if status == Status::StreamEnd {
                self.is_in_member = false;
                self.read_trailer()?;
            } else if used == 0 && self.decoded == 0 {
                return Err(damage("a gzip member is damaged"));
            }
        }
        Ok(())
    }
}

impl<R: Read> BufRead for MemberReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.decoded {
            self.decode()?;
        }
        Ok(&self.output[self.taken..self.decoded])
    }

    fn consume(&mut self, amount: usize) {
        self.taken = self.decoded.min(self.taken + amount);
    }
}

impl<R: Read> Read for MemberReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(bytes)?;
        self.consume(length);
        Ok(length)
    }
}

fn damage(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn cut() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "the file ends within a gzip member",
    )
}

/// Bytes that are read at once, and decoded at once.
const INPUT: usize = 128 << 10;
const OUTPUT: usize = 64 << 10;

/// Flags of a header (RFC 1952, 2.3.1).
const HEADER_CRC: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xe0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::gzip::Gzip;
    use crate::base::rng::Rng;

    /// Reads few bytes at once.
    struct Few<'a>(&'a [u8], usize);

    impl Read for Few<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.1);
            self.0.read(&mut bytes[..length])
        }
    }

    type Members = Vec<(u64, Vec<u8>)>;

    /// The offset and the content of each member up to an error, and that.
    fn members(file: &[u8], few: usize) -> (Members, Option<io::Error>) {
        let mut reader = MemberReader::new(Few(file, few));
        let mut members = Vec::new();
        loop {
            match reader.next_member() {
                Ok(None) => return (members, None),
                Ok(Some(offset)) => {
                    let mut content = Vec::new();
                    if let Err(error) = reader.read_to_end(&mut content) {
                        return (members, Some(error));
                    }
                    members.push((offset, content));
                }
                Err(error) => return (members, Some(error)),
            }
        }
    }

    /// A file with members of these contents.
    fn file_of(contents: &[Vec<u8>]) -> (Vec<u8>, Members) {
        let (mut file, mut members) = (Vec::new(), Vec::new());
        let mut gzip = Gzip::new(6);
        for content in contents {
            members.push((file.len() as u64, content.clone()));
            gzip.member(content, &mut file);
        }
        (file, members)
    }

    fn contents() -> Vec<Vec<u8>> {
        let mut rng = Rng::from_seed(7);
        let mut noise = |length: usize| (0..length).map(|_| rng.next_u64() as u8).collect();
        vec![
            b"a record".to_vec(),
            Vec::new(),
            b"text ".repeat(100_000),
            noise(300_000),
            noise(10),
        ]
    }

    #[test]
    fn each_member_has_its_offset_and_its_content() {
        let (file, expected) = file_of(&contents());
        for few in [1, 7, 1000, usize::MAX] {
            let (read, error) = members(&file, few);
            assert!(read == expected && error.is_none(), "{few}: {error:?}");
        }
        assert!(members(b"", 1).0.is_empty());
    }

    #[test]
    fn the_rest_of_a_member_is_skipped() {
        let (file, expected) = file_of(&contents());
        let mut reader = MemberReader::new(&file[..]);
        for (offset, content) in &expected {
            assert_eq!(reader.next_member().unwrap(), Some(*offset));
            let mut first = vec![0; content.len() / 2];
            reader.read_exact(&mut first).unwrap();
            assert!(content.starts_with(&first));
        }
        assert_eq!(reader.skip_rest().unwrap(), file.len() as u64);
        assert_eq!(reader.next_member().unwrap(), None);
    }

    #[test]
    fn optional_fields_of_a_header_are_skipped() {
        let (mut file, _) = file_of(&[b"content".to_vec()]);
        file[3] = HEADER_CRC | EXTRA | NAME | COMMENT;
        file.splice(10..10, *b"\x03\x00abcname\0comment\0\x12\x34");
        let (read, error) = members(&file, 3);
        assert!(
            read == [(0, b"content".to_vec())] && error.is_none(),
            "{error:?}"
        );
    }

    #[test]
    fn a_cut_file_is_an_error_after_its_whole_members() {
        let (file, expected) = file_of(&[b"one".to_vec(), b"another".to_vec()]);
        for length in 1..file.len() {
            let (read, error) = members(&file[..length], 5);
            let whole = expected[1].0 as usize <= length;
            assert_eq!(read.len(), usize::from(whole), "{length}");
            let kind = error.map(|error| error.kind());
            let is_end = length == expected[1].0 as usize;
            assert_eq!(
                kind,
                (!is_end).then_some(ErrorKind::UnexpectedEof),
                "{length}"
            );
        }
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let (file, _) = file_of(&[b"content ".repeat(50), b"last".to_vec()]);
        // Time, level and system may be anything.
        for at in (0..file.len()).filter(|at| !(4..10).contains(at)) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x20;
            let (read, error) = members(&damaged, 1000);
            let is_noticed = error.is_some() || at == 3 || read.len() == 2;
            assert!(is_noticed, "{at}: {}", read.len());
            let is_same = read
                .iter()
                .all(|(_, content)| *content == b"content ".repeat(50) || content == b"last");
            assert!(is_same, "{at}");
        }
    }
}
