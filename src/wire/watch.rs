//! `WatchRunResponse`, whose events are passed on as they lie in the log.
//!
//! This is the type of that message in place of a generated one: to build events for every watcher, only to write
//! them as the same bytes again, is most of what a watched run would cost.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, bytes as field, message, skip_field};
use prost::{DecodeError, Message, Name};

use super::control::Heartbeat;

/// The number of the field with one event.
const EVENT: u32 = 1;
/// The number of the field with a heartbeat.
const HEARTBEAT: u32 = 2;
/// The number of the field with several events.
const EVENTS: u32 = 3;

/// What a watcher is told at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchRunResponse {
    /// The next event.
    Event(Bytes),
    /// The next events, for a client that asked for several at a time.
    Events(Vec<Bytes>),
    /// Nothing has happened, and the connection is alive.
    Heartbeat(Heartbeat),
}

impl Default for WatchRunResponse {
    fn default() -> Self {
        Self::Events(Vec::new())
    }
}

impl Name for WatchRunResponse {
    const NAME: &'static str = "WatchRunResponse";
    const PACKAGE: &'static str = "forge.control.v1";
}

impl Message for WatchRunResponse {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Event(event) => field::encode(EVENT, event, buffer),
            Self::Events(events) => events.iter().for_each(|event| field::encode(EVENTS, event, buffer)),
            Self::Heartbeat(heartbeat) => message::encode(HEARTBEAT, heartbeat, buffer),
        }
    }

    fn merge_field(
        &mut self,
        number: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match number {
            EVENT => {
                let mut event = Bytes::new();
                field::merge(wire_type, &mut event, buffer, context)?;
                *self = Self::Event(event);
            }
            EVENTS => {
                let mut event = Bytes::new();
                field::merge(wire_type, &mut event, buffer, context)?;
                match self {
                    Self::Events(events) => events.push(event),
                    Self::Event(_) | Self::Heartbeat(_) => *self = Self::Events(vec![event]),
                }
            }
            HEARTBEAT => {
                let mut heartbeat = Heartbeat::default();
                message::merge(wire_type, &mut heartbeat, buffer, context)?;
                *self = Self::Heartbeat(heartbeat);
            }
            _ => skip_field(wire_type, number, buffer, context)?,
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Event(event) => field::encoded_len(EVENT, event),
            Self::Events(events) => events.iter().map(|event| field::encoded_len(EVENTS, event)).sum(),
            Self::Heartbeat(heartbeat) => message::encoded_len(HEARTBEAT, heartbeat),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
