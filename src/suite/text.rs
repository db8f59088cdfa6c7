//! The bytes of a file: held in memory, or read from where they stand whenever they are needed.
//!
//! Large files are never held: what a suite needs of them is read again. Who makes a [`Text`] knows what kind of
//! place that is; here is only that one can read there.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// Files that are longer than this are not held, where there is a choice.
pub const HELD_BYTES: u64 = 8 << 20;

/// Reads bytes from a position on, all that are asked for.
type ReadAt = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync;

/// The bytes of a file.
#[derive(Clone)]
pub struct Text {
    len: u64,
    place: Storage,
}

#[derive(Clone)]
enum Storage {
    Held(Arc<[u8]>),
    Stored(Arc<ReadAt>),
}

impl Text {
    /// A text of `len` bytes that `read_at` reads; they do not change.
    pub fn stored(len: u64, read_at: impl Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self { len, place: Storage::Stored(Arc::new(read_at)) }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, if they are held.
    #[must_use]
    pub fn held(&self) -> Option<&[u8]> {
        match &self.place {
            Storage::Held(bytes) => Some(bytes),
            Storage::Stored(_) => None,
        }
    }

    /// Some of the bytes.
    ///
    /// # Errors
    /// When they cannot be read, or fewer than `bytes` follow `start`.
    pub fn read(&self, start: u64, bytes: usize) -> io::Result<Vec<u8>> {
        if start.checked_add(bytes as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut read = vec![0; bytes];
        self.read_into(start, &mut read)?;
        Ok(read)
    }

    /// All bytes, one after the other.
    pub fn reader(&self) -> impl Read + use<> {
        TextReader { text: self.clone(), position: 0 }
    }

    fn read_into(&self, start: u64, out: &mut [u8]) -> io::Result<()> {
        match &self.place {
            Storage::Held(bytes) => {
                let from = usize::try_from(start).ok().and_then(|start| bytes.get(start..start + out.len()));
                out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Storage::Stored(read_at) => read_at(start, out),
        }
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len() as u64, place: Storage::Held(bytes.into()) }
    }
}

impl PartialEq for Text {
    /// Stored bytes are the same if they are the same place.
    fn eq(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Storage::Held(one), Storage::Held(other)) => one == other,
            (Storage::Stored(one), Storage::Stored(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.held().is_some() { "held" } else { "stored" };
        write!(f, "Text({} bytes, {place})", self.len)
    }
}

struct TextReader {
    text: Text,
    position: u64,
}

impl Read for TextReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.text.len - self.position).unwrap_or(usize::MAX);
        let bytes = left.min(out.len());
        self.text.read_into(self.position, &mut out[..bytes])?;
        self.position += bytes as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_and_stored_read_the_same() {
        let held = Text::from(b"0123456789".to_vec());
        let stored = Text::stored(10, |start, out| {
            for (index, byte) in out.iter_mut().enumerate() {
                *byte = b'0' + u8::try_from(start).expect("small") + u8::try_from(index).expect("small");
            }
            Ok(())
        });
        for text in [held, stored] {
            assert_eq!(text.read(3, 4).expect("reads"), b"3456");
            assert!(text.read(8, 3).is_err() && text.read(u64::MAX, 2).is_err());
            let mut all = String::new();
            text.reader().read_to_string(&mut all).expect("reads");
            assert_eq!(all, "0123456789");
        }
    }
}
