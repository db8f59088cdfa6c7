//! The large files of a call, which come in pieces behind its first frame.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};
use tonic::{Status, Streaming};

use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::{AttachmentChunk, Blob, InvokeRequest, blob};

/// Most bytes of one file.
pub(super) const MAX_FILE_BYTES: usize = 32 << 20;
/// Most bytes of all files of a call together.
const MAX_BYTES: usize = 64 << 20;

/// Files by the id under which messages name them.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    files: HashMap<String, Vec<u8>>,
}

/// Where the content of a file is: at an address, or here.
#[derive(Debug, Clone, Copy)]
pub(super) enum FileAt<'a> {
    Uri(&'a str),
    Content(&'a [u8]),
}

impl FileAt<'_> {
    /// The content as text; of an address that is nothing.
    pub(super) fn base64(&self) -> String {
        match self {
            Self::Uri(_) => String::new(),
            Self::Content(bytes) => BASE64.encode(bytes),
        }
    }

    /// The address, or the content as one.
    pub(super) fn data_url(&self, media_type: &str) -> String {
        // What has no media type is bytes, by the rules of such addresses and of HTTP; of what has `*` for a format
        // as much is known.
        let media_type =
            if media_type.is_empty() || media_type.ends_with("/*") { "application/octet-stream" } else { media_type };
        match self {
            Self::Uri(uri) => (*uri).to_owned(),
            Self::Content(_) => format!("data:{media_type};base64,{}", self.base64()),
        }
    }
}

impl Attachments {
    /// Hears the frames of a call until all files are there that its first frame `announced`.
    ///
    /// # Errors
    /// When they are too large, are not what was announced, or do not come.
    pub(super) async fn receive(announced: &[Blob], frames: &mut Streaming<InvokeRequest>) -> Result<Self, Status> {
        let mut attachments = Self::default();
        let mut open = announced.len();
        while open > 0 {
            let frame = frames.message().await?.and_then(|request| request.frame);
            let chunk = match frame {
                Some(Frame::Attachment(chunk)) => chunk,
                Some(Frame::Cancel(_)) => return Err(Status::cancelled("cancelled before its files were there")),
                Some(Frame::Start(_)) => return Err(Status::invalid_argument("a second `start` came")),
                Some(Frame::ToolResult(_)) => continue,
                None => return Err(Status::invalid_argument("the stream ended before its files were there")),
            };
            open -= usize::from(attachments.take(announced, chunk)?);
        }
        Ok(attachments)
    }

    /// The content of a file, if it came.
    fn get(&self, id: &str) -> Option<&[u8]> {
        self.files.get(id).map(Vec::as_slice)
    }

    /// Where the content of a file is.
    ///
    /// # Errors
    /// When it did not come.
    pub(super) fn find<'a>(&'a self, blob: &'a Blob) -> Result<FileAt<'a>, String> {
        let content = match &blob.source {
            Some(blob::Source::Uri(uri)) => return Ok(FileAt::Uri(uri)),
            Some(blob::Source::Inline(bytes)) => Some(bytes.as_slice()),
            Some(blob::Source::AttachmentId(id)) => self.get(id),
            None => None,
        };
        let name = &blob.name;
        content.map(FileAt::Content).ok_or_else(|| format!("the case holds a file {name:?} whose content did not come"))
    }

    /// Takes the next piece; whether its file is whole now.
    fn take(&mut self, announced: &[Blob], chunk: AttachmentChunk) -> Result<bool, Status> {
        let AttachmentChunk { attachment_id, offset, data, last } = chunk;
        let is_named =
            |blob: &&Blob| matches!(&blob.source, Some(blob::Source::AttachmentId(id)) if *id == attachment_id);
        let wrong = |what: &str| Status::invalid_argument(format!("attachment {attachment_id:?}: {what}"));
        let announced = announced.iter().find(is_named).ok_or_else(|| wrong("it was not announced"))?;
        let bytes: usize = self.files.values().map(Vec::len).sum();
        if bytes.saturating_add(data.len()) > MAX_BYTES {
            let message = format!("the files of a call may have {MAX_BYTES} bytes together, and these have more");
            return Err(Status::resource_exhausted(message));
        }
        let file = self.files.entry(attachment_id.clone()).or_default();
        if usize::try_from(offset) != Ok(file.len()) {
            return Err(wrong("its pieces must come in order and without gaps"));
        }
        file.extend_from_slice(&data);
        if file.len() > MAX_FILE_BYTES {
            return Err(Status::resource_exhausted(format!("a file may have {MAX_FILE_BYTES} bytes")));
        }
        if last && Sha256::digest(&*file).as_slice() != announced.sha256 {
            return Err(wrong("its content is not what its sha256 says"));
        }
        Ok(last)
    }
}
