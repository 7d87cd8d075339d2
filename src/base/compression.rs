//! Compression of lines: each call makes one gzip member or zstd frame, so that a file of them is complete after
//! each.

use std::io;

use crate::base::gzip::Deflater;

/// How a file of lines is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Gzip members (RFC 1952): `.gz`.
    Gzip,
    /// Zstandard frames (RFC 8878): `.zst`. Needs the cargo feature `zstd`.
    Zstd,
}

impl Compression {
    /// All of them.
    pub const ALL: [Compression; 2] = [Compression::Gzip, Compression::Zstd];

    /// The ending of a file's name, with its dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// The name of the content coding.
    pub const fn coding(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }

    /// Whether this build can write it.
    pub const fn is_built(self) -> bool {
        match self {
            Compression::Gzip => true,
            Compression::Zstd => cfg!(feature = "zstd"),
        }
    }
}

/// Compresses whole pieces.
#[derive(Default)]
pub struct Compressor {
    /// The first piece that needs it makes it, as with the other.
    gzip: Option<Deflater>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    /// Appends the bytes to `out` as one gzip member or zstd frame, which has its checksum.
    ///
    /// # Errors
    /// There is no memory, or this build has no such compression.
    pub fn compress(
        &mut self,
        compression: Compression,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        match compression {
            Compression::Gzip => {
                let deflater = self.gzip.get_or_insert_with(|| Deflater::new(GZIP_LEVEL));
                deflater.member(bytes, out);
                Ok(())
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                let compressor = match &mut self.zstd {
                    Some(compressor) => compressor,
                    none => {
                        let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
                        compressor.include_checksum(true)?;
                        none.insert(compressor)
                    }
                };
                out.extend_from_slice(&compressor.compress(bytes)?);
                Ok(())
            }
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this build does not compress with zstd: build argiope with the feature `zstd`",
            )),
        }
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

/// The usual level of gzip.
const GZIP_LEVEL: u32 = 6;

/// The usual level of zstd.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::gzip::gunzip_members;

    #[test]
    fn each_piece_is_a_gzip_member_of_its_own() {
        let (mut compressor, mut out) = (Compressor::default(), Vec::new());
        for piece in ["one\n", "two\n"] {
            compressor
                .compress(Compression::Gzip, piece.as_bytes(), &mut out)
                .expect("memory");
        }
        assert_eq!(gunzip_members(&out), [b"one\n", b"two\n"]);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn each_piece_is_a_zstd_frame_of_its_own() {
        let (mut compressor, mut out, mut frames) = (Compressor::default(), Vec::new(), Vec::new());
        for piece in ["one\n", "two\n"] {
            let start = out.len();
            compressor
                .compress(Compression::Zstd, piece.as_bytes(), &mut out)
                .expect("memory");
            frames.push(out[start..].to_vec());
        }
        let read = |bytes: &[u8]| zstd::decode_all(bytes).expect("whole frames");
        assert_eq!(read(&frames[1]), b"two\n");
        assert_eq!(read(&out), b"one\ntwo\n");
        // A damaged byte is found.
        let last = frames[0].len() - 1;
        frames[0][last] ^= 1;
        assert!(zstd::decode_all(&*frames[0]).is_err());
    }
}
