//! EDGE. Reads the text of a trace file: zstd with one or more frames, or plain text.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first four bytes of a zstd frame (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The number of bytes that one step decompresses.
const CHUNK: usize = 1 << 18;

/// Returns the text of `file`. Decompresses it if it starts with a zstd frame.
pub(crate) fn text<'a>(file: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut file = BufReader::new(file);
    if file.fill_buf()?.starts_with(&MAGIC) {
        Ok(Box::new(BufReader::with_capacity(CHUNK, Frames { file, frame: None })))
    } else {
        Ok(Box::new(file))
    }
}

/// A reader of the decompressed contents of all zstd frames of a file, one after the other.
struct Frames<R> {
    file: BufReader<R>,
    /// The frame that is being decompressed; `None` between two frames.
    frame: Option<FrameDecoder>,
}

impl<R: Read> Frames<R> {
    /// Opens the next frame. Returns false at the end of the file.
    fn open(&mut self) -> io::Result<bool> {
        while !self.file.fill_buf()?.is_empty() {
            let mut frame = FrameDecoder::new();
            match frame.init(&mut self.file) {
                Ok(()) => {
                    self.frame = Some(frame);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.file).take(length), &mut io::sink())? < length {
                        return Err(bad("a skippable frame is cut off"));
                    }
                }
                Err(error) => return Err(undecoded(error)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else {
                if self.open()? {
                    continue;
                }
                return Ok(0);
            };
            if frame.can_collect() == 0 && frame.is_finished() {
                if frame
                    .get_checksum_from_data()
                    .is_some_and(|sum| frame.get_calculated_checksum() != Some(sum))
                {
                    return Err(bad("the checksum does not match"));
                }
                self.frame = None;
                continue;
            }
            if frame.can_collect() < buf.len() && !frame.is_finished() {
                frame
                    .decode_blocks(&mut self.file, BlockDecodingStrategy::UptoBytes(buf.len()))
                    .map_err(undecoded)?;
            }
            let read = frame.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
        }
    }
}

fn bad(cause: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad zstd data: {cause}"))
}

/// Converts an error of the decoder. If the file is truncated, the message says so.
fn undecoded(error: FrameDecoderError) -> io::Error {
    let mut cause: Option<&dyn Error> = Some(&error);
    while let Some(this) = cause {
        if this.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return bad("it is cut off");
        }
        cause = this.source();
    }
    bad(error)
}
