"""Runs the jobs of a policy with an HTTP target."""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from .job import Handler, Job, encode, ending

CLOCKS = 300  # seconds: largest clock error of a signature

STATUS = {"permanent": "422 Unprocessable Content", "retry-after": "429 Too Many Requests", "returned": "204 No Content",
          "unavailable": "503 Service Unavailable", "fail": "408 Request Timeout"}
"""Of 4xx and 5xx, only 408 means a failed attempt without further effects."""


def target(handle: Handler, secret: bytes | None = None) -> Callable[..., Iterable[bytes]]:
    """Returns a WSGI application that runs a handler for each request of a policy's HTTP target. With the secret of the
    target's `sign`, requests without a valid signature get 401."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items()
                   if name.startswith("HTTP_")}
        if environ.get("CONTENT_TYPE"):
            headers["content-type"] = environ["CONTENT_TYPE"]
        more: list[tuple[str, str]] = []
        kind, reply = {"Content-Type": "text/plain; charset=utf-8"}, b""
        status, text = "204 No Content", ""
        if secret is not None and not signed(headers.get("penstock-signature", ""), body, secret):
            status, text = "401 Unauthorized", "the signature is missing, wrong or old"
        else:
            job = Job(headers, body)
            try:
                handle(job)
                if job.reply is not None:
                    status, (reply, kind) = "200 OK", encode(job.reply)
            except Exception as error:
                said = ending(error)
                status, text = STATUS[said["status"]], said.get("error", "")
                if "again" in said:
                    more.append(("Penstock-Again", said["again"]))
                if said.get("retry_after_ms", 0) > 0:
                    more.append(("Retry-After", str(math.ceil(said["retry_after_ms"] / 1000))))
            more += [(f"Penstock-Used-{name}", str(cost)) for name, cost in job.used.items()]
        start_response(status, [*kind.items(), *more])
        return [reply or text.encode()]

    return application


def signed(signature: str, body: bytes, secret: bytes) -> bool:
    """Reports whether a Penstock-Signature is recent and matches a body."""
    parts = dict(part.partition("=")[::2] for part in signature.split(","))
    at, given = parts.get("t", ""), parts.get("v1", "")
    if not at.isdecimal() or abs(time.time() - int(at)) > CLOCKS:
        return False
    want = hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(want.encode(), given.encode())
