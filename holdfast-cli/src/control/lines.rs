use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line; `whole` unless the other side went before its end.
    Text {
        /// The line without its end.
        text: String,
        /// Whether its end came.
        whole: bool,
    },
    /// Nothing more comes.
    End,
    /// It is longer than allowed.
    TooLong,
    /// It is not UTF-8.
    NotText,
}

/// Reads a line of `limit` bytes at most; what is read is all that is allocated.
pub(super) async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> io::Result<Line> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(limit as u64 + 1);
    limited.read_until(b'\n', &mut bytes).await?;
    let whole = bytes.last() == Some(&b'\n');
    if whole {
        bytes.pop();
    }
    if bytes.is_empty() && !whole {
        return Ok(Line::End);
    }
    if bytes.len() > limit {
        return Ok(Line::TooLong);
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Line::Text { text, whole },
        Err(_) => Line::NotText,
    })
}

/// Writes a line within a time.
pub(super) async fn write_line(
    writer: &mut (impl AsyncWrite + Unpin),
    line: &str,
    within: Duration,
) -> io::Result<()> {
    let written = async {
        writer.write_all(line.as_bytes()).await?;
        writer.flush().await
    };
    tokio::time::timeout(within, written)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(mut bytes: &[u8], limit: usize) -> Vec<Line> {
        let mut found = Vec::new();
        while found.last() != Some(&Line::End) && found.len() < 5 {
            found.push(read_line(&mut bytes, limit).await.unwrap());
        }
        found
    }

    fn text(text: &str, whole: bool) -> Line {
        Line::Text {
            text: text.into(),
            whole,
        }
    }

    #[tokio::test]
    async fn a_line_ends_at_its_end_at_the_limit_or_where_the_other_side_goes() {
        assert_eq!(lines(b"", 4).await, [Line::End]);
        assert_eq!(
            lines(b"\nabcd\nab", 4).await,
            [
                text("", true),
                text("abcd", true),
                text("ab", false),
                Line::End
            ]
        );
        assert_eq!(lines(b"abcde", 4).await[0], Line::TooLong);
        assert_eq!(lines(b"\xff\xfe\n", 4).await[0], Line::NotText);
    }
}
