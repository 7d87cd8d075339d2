//! Bytes in gzip's clothes, uncompressed: what a server needs to make a client unpack.

/// A gzip member (RFC 1952) of `bytes` in stored blocks (RFC 1951, section 3.2.4).
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Deflate, no flags, no time, no hints, system unknown.
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut rest = bytes;
    loop {
        let (block, after) = rest.split_at(rest.len().min(STORED_MAX));
        member.push(u8::from(after.is_empty()));
        let length = block.len() as u16;
        member.extend(length.to_le_bytes());
        member.extend((!length).to_le_bytes());
        member.extend(block);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    member.extend(crc32(bytes).to_le_bytes());
    member.extend((bytes.len() as u32).to_le_bytes());
    member
}

/// The CRC-32 of RFC 1952, section 8.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        REMAINDERS[(crc as u8 ^ byte) as usize] ^ (crc >> 8)
    })
}

const REMAINDERS: [u32; 256] = {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let odd = remainder & 1;
            remainder = (remainder >> 1) ^ (0xedb8_8320 & odd.wrapping_neg());
            bit += 1;
        }
        remainders[byte] = remainder;
        byte += 1;
    }
    remainders
};

/// A stored block's length is a 16-bit number.
const STORED_MAX: usize = u16::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_standard_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn long_content_is_cut_into_stored_blocks_of_which_only_the_last_is_final() {
        let content = vec![7; STORED_MAX + 2];
        let member = gzip(&content);
        assert_eq!(member[10..15], [0, 255, 255, 0, 0]);
        let second = 15 + STORED_MAX;
        assert_eq!(member[second..second + 7], [1, 2, 0, 253, 255, 7, 7]);
        assert_eq!(member.len(), second + 7 + 8);
        assert_eq!(gzip(b"")[10..15], [1, 0, 0, 255, 255]);
    }
}
