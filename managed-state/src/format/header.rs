use state_api::{Error, Result};

/// The word under which the canonical format stands in handles.
pub const CANONICAL: &str = "canonical";

/// Length of the header of every stream of managed state in bytes.
pub const HEADER_LEN: usize = 8;

/// Magic numbers of the streams; the eighth byte of the header is the version.
pub(crate) const KEYED_MAGIC: [u8; 7] = *b"HFKEYED";
pub(crate) const OPERATOR_MAGIC: [u8; 7] = *b"HFOPSTA";
pub(crate) const RAW_MAGIC: [u8; 7] = *b"HFRAWST";
pub(crate) const PAIRS_MAGIC: [u8; 7] = *b"HFPAIRS";
pub(crate) const CHANGES_MAGIC: [u8; 7] = *b"HFCHGES";

const VERSION: u8 = 1;

/// Returns the header of a stream.
pub(crate) fn header(magic: [u8; 7]) -> [u8; HEADER_LEN] {
    let [a, b, c, d, e, f, g] = magic;
    [a, b, c, d, e, f, g, VERSION]
}

/// Checks the header at the start of a stream.
///
/// # Errors
/// `Corrupt` when it is not there, `Unsupported` when a newer version wrote it.
pub(crate) fn check_header(magic: [u8; 7], stream: &[u8]) -> Result<()> {
    let Some((found, [version, ..])) = stream.split_first_chunk::<7>() else {
        return Err(Error::corrupt("the stream is shorter than its header"));
    };
    if *found != magic {
        return Err(Error::corrupt(
            "the stream does not start with its magic number",
        ));
    }
    if *version != VERSION {
        return Err(Error::unsupported(format!(
            "the stream has version {version}; this program reads version {VERSION}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    #[test]
    fn k_683_a_newer_version_is_named_and_other_bytes_are_refused() {
        let good = header(KEYED_MAGIC);
        check_header(KEYED_MAGIC, &good).unwrap();
        let mut newer = good;
        newer[7] = 9;
        let error = check_header(KEYED_MAGIC, &newer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains('9'));
        for bad in [&good[..7], &[][..], b"HFOPSTA\x01"] {
            assert_eq!(
                check_header(KEYED_MAGIC, bad).unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
    }
}
