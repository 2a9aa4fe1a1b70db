"""What handlers get and raise, in a Worker and behind an HTTP target alike."""

from __future__ import annotations

import json
import math
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

Time = str | float | datetime
"""Such as "90s" or "2d", seconds from now, or an instant."""

Body = bytes | str | dict[str, Any] | list[Any] | int | float | bool | None


class Codec(NamedTuple):
    """Encodes the payloads of jobs and replies, to encrypt or compress them: the same as penstock.Codec in Go."""

    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]


class Job:
    """A job that is being run. Names of headers are in small letters."""

    def __init__(self, headers: Mapping[str, str], body: bytes):
        self.headers = headers
        self.body = body
        self.id = headers.get("penstock-job", "")
        self.policy = headers.get("penstock-policy", "")
        self.key = decode_key(headers.get("penstock-key", "_"))
        self.attempt = int(headers.get("penstock-attempt", "1"))
        """1 is the first; only attempts that failed count."""
        self.idempotency_key = headers.get("idempotency-key", "")
        """The submitter's key, or a unique one shared by all attempts of the job."""
        self.timeout = int(headers.get("penstock-timeout", "0")) / 1000
        """Seconds that the policy allows an attempt; 0: not known. Use it as the time-out of requests."""
        self.stopping = threading.Event()
        """Set when the handler should end: the worker stops, or the time-out has passed. An exception raised
        because the worker stops counts as no attempt."""
        self.returned = False  # the worker stops: an exception means that the job goes back to its bucket
        self.said = ""  # the latest progress
        self.used: dict[str, int] = {}
        """The job's actual costs, by name: {"tokens": 830}."""
        self.reply: Body = None
        """The job's result, for a waiting submitter, a callback and the policy's history."""
        self.say: Callable[[str], None] = lambda text: None
        self.begun: Callable[[], None] = lambda: None

    def progress(self, text: str) -> None:
        """Reports how far the job is, in up to 256 bytes, which is shown with it. An HTTP target cannot."""
        self.said = text
        self.say(text)

    def answered(self) -> None:
        """Reports that the target's answer has begun: for a limit that counts from the answer, the request counts from
        now on, and no longer from the end of the run. An HTTP target cannot."""
        self.begun()

    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


Handler = Callable[[Job], object]
"""Runs a job. It returns when the job is done, and raises one of the exceptions below, or any other one, which is a
failed attempt."""


class Permanent(Exception):
    """The job can never succeed and becomes a dead letter."""


class RetryAfter(Exception):
    """The other side is throttling: the whole bucket pauses, and no attempt is counted. Without seconds the pause is the
    policy's backoff."""

    def __init__(self, text: str = "throttled", seconds: float = 0):
        super().__init__(text)
        self.seconds = seconds


class Again(Exception):
    """Runs the job again at a later time, without counting an attempt or holding up its bucket."""

    def __init__(self, when: Time):
        super().__init__(when_text(when))


class Unavailable(Exception):
    """The other side is down, whatever the job is: after several of these in a row the bucket waits until it is back."""


def ending(error: BaseException) -> dict[str, Any]:
    """Returns what an exception says of a run or a call, as its valve hears it."""
    said: dict[str, Any] = {"error": one_line(error) or type(error).__name__}
    match error:
        case Again():
            return {"status": "returned", "again": str(error)}
        case RetryAfter():
            return said | {"status": "retry-after", "retry_after_ms": int(error.seconds * 1000)}
        case Permanent():
            return said | {"status": "permanent"}
        case Unavailable():
            return said | {"status": "unavailable"}
    return said | {"status": "fail"}


JSON = {"Content-Type": "application/json"}


def encode(body: Body) -> tuple[bytes, dict[str, str]]:
    """Returns a payload and the headers that describe it."""
    if isinstance(body, bytes):
        return body, {}
    if isinstance(body, str):
        return body.encode(), {"Content-Type": "text/plain; charset=utf-8"}
    return dumps(body), JSON


def dumps(value: Any) -> bytes:
    """Returns compact JSON without needless escapes, as JSON.stringify does: repeats of a job are compared byte by byte.
    Some numbers differ: 7.0 and 1e-05 are 7 and 0.00001 in JavaScript, which also rounds integers above 2**53."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")  # half a surrogate pair becomes \udXXX


ENCODING = "penstock-codec"
"""The Content-Encoding of a payload that a codec encoded."""


def seal(codec: Codec | None, data: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    """Encodes a payload, if there is a codec, and returns it with its headers."""
    if not codec:
        return data, headers
    if already := [value for name, value in headers.items() if name.lower() == "content-encoding"]:
        raise ValueError(f"encode a payload that has Content-Encoding {already[0]}")
    return codec.encode(data), headers | {"Content-Encoding": ENCODING}


def decode_key(form: str) -> str:
    """Returns the key of its form in subjects."""
    if form == "_":
        return ""
    return ".".join(urllib.parse.unquote("" if token == "%" else token) for token in form.split("."))


def when_text(when: Time) -> str:
    """Returns a time as headers have it."""
    if isinstance(when, datetime):
        return when.astimezone().isoformat()
    return when if isinstance(when, str) else f"{math.ceil(when * 1000)}ms"


def one_line(error: object) -> str:
    """Returns a text that is fit for a header."""
    return " ".join(str(error).split())[:1000].encode(errors="replace").decode()
