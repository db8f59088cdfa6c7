"""Between Python values and the values of the protocol: JSON that keeps its text, texts, faults, durations."""

import dataclasses
import json
from datetime import date, time
from enum import Enum
from typing import Any, NoReturn

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from forge_daemon.proto import values_pb2 as pb

__all__ = ["code", "duration", "fault_of", "json_of", "json_of_result", "json_text", "seconds", "shortened", "text_of"]

MAX_STATUS_BYTES = 900
"""The message of a status travels in a header, and values.proto wants it below 1 KiB."""


def json_of(value: Any) -> pb.Json:
    """The protocol's form of a JSON value.

    Pass `str` or `bytes` when you have the JSON *text*, for example a model's arguments before anything parsed them:
    it travels byte for byte, which keeps large integers, `1.0` and the order of keys. Text that is not JSON is
    reported as malformed. Any other value is printed as JSON; a value that cannot be raises TypeError or ValueError.
    """
    if isinstance(value, pb.Json):
        return value
    if not isinstance(value, str | bytes):
        return _printed(value)
    text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return pb.Json(raw=text) if _is_json(text) else pb.Json(malformed=text)


def json_of_result(value: Any) -> pb.Json:
    """What a tool returned. Here a text is a text and no JSON: a tool that returned `"7"` did not return a number."""
    return _printed(value) if isinstance(value, str) else json_of(value)


def json_text(value: pb.Json) -> str:
    """The text of a JSON value, as a model should read it. A value that does not exist is the empty text."""
    match value.WhichOneof("form"):
        case "raw":
            return value.raw.decode("utf-8", "replace")
        case "malformed":
            return value.malformed.decode("utf-8", "replace")
        case "value":
            return json.dumps(json_format.MessageToDict(value.value), ensure_ascii=False)
    return ""


def text_of(message: pb.Message) -> str:
    """The text parts of a message, joined with nothing between them."""
    return "".join(part.text for part in message.parts if part.WhichOneof("content") == "text")


def fault_of(error: BaseException) -> pb.Fault:
    """An exception in the protocol's words."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # An exception may quote broken text, and reporting it must not fail because of that.
    text = text.encode("utf-8", "replace").decode()
    return pb.Fault(grpc_code=code(StatusCode.UNKNOWN), message=text, origin=pb.FAULT_ORIGIN_AGENT)


def code(status: StatusCode) -> int:
    """The number of a gRPC status."""
    return status.value[0]


def duration(seconds: float) -> Duration:
    """Seconds in the protocol's form."""
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def seconds(length: Duration) -> float:
    """The protocol's form in seconds."""
    return length.seconds + length.nanos / 1e9


def shortened(message: str) -> str:
    """The message of a status, as much of it as may travel."""
    return message.encode("utf-8", "replace")[:MAX_STATUS_BYTES].decode("utf-8", "ignore")


def _printed(value: Any) -> pb.Json:
    return pb.Json(raw=json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain).encode())


def _plain(value: Any) -> Any:
    """What can be printed in place of an object that cannot: a data class, an enum, a date, a model of pydantic."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date | time):
        return value.isoformat()
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _is_json(text: bytes) -> bool:
    try:
        # Numbers stay text: Python has a limit for the digits of an integer, JSON has none. NaN is not JSON.
        json.loads(text.decode("utf-8"), parse_int=str, parse_float=str, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return False
    return True


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)
