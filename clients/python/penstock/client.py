"""The HTTP API of admitters. Types of answers are in api.py, which is made of openapi.yaml."""

from __future__ import annotations

import base64
import http.client
import json
import selectors
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypedDict, Unpack, cast

from . import api
from .job import ENCODING, JSON, Body, Codec, Time, dumps, encode, ending, seal, when_text


class Error(Exception):
    """An error answer, as a problem document (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]):
        super().__init__(f"{status} {problem.get('detail') or problem.get('title') or ''}".strip())
        self.status = status
        self.problem = problem
        self.reason: str = problem.get("reason", "")


class RefusedError(Error):
    """429: the bucket is full, or the limit is exhausted (see `reason`). `retry_after` is in seconds."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float):
        super().__init__(status, problem)
        self.retry_after = retry_after


class UnavailableError(Error):
    """503, 507, or no answer, with status 0. The job may have been stored: repeat the request with its
    idempotency_key."""


class Options(TypedDict, total=False):
    """Optional settings of a job."""

    idempotency_key: str
    deadline: Time
    not_before: Time
    priority: int
    cost: int
    costs: dict[str, int]
    """By the names of limits' costs, such as tokens."""
    max_attempts: int
    """Failures after which it is a dead letter, at most the policy's."""
    timeout: str | float
    """Of one attempt, at most the policy's."""
    retention: str | float
    """How long the ended job is kept, at most the policy's."""
    unique: str
    """A name under which one job of the bucket waits: the earlier one, or with replace this one."""
    replace: bool
    tags: list[str]
    callback: str
    method: str
    path: str
    headers: dict[str, str]
    """Any other header, such as Content-Type or Penstock-Forward-Authorization."""


class Client:
    """Talks to the admitters at a URL. Each thread keeps its own connection."""

    def __init__(self, url: str = "http://127.0.0.1:8080", token: str = "", *, timeout: float = 30,
                 context: ssl.SSLContext | None = None, codec: Codec | None = None):
        self.base = urllib.parse.urlsplit(url)
        self.timeout, self.context, self.codec = timeout, context, codec
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.kept = threading.local()

    def submit(self, policy: str, key: str = "", body: Body = b"", **options: Unpack[Options]) -> api.Accepted:
        """Stores a job. A RefusedError has the time after which to retry."""
        return cast(api.Accepted, self._submit(policy, key, body, 0, options))

    def run(self, policy: str, key: str = "", body: Body = b"", *, wait: float = 30,
            **options: Unpack[Options]) -> api.Outcome | api.Accepted:
        """Submits a job and waits for its end, at most `wait` seconds, up to 300. The answer has "end" if it came."""
        return cast(api.Outcome | api.Accepted, self._submit(policy, key, body, wait, options))

    def _submit(self, policy: str, key: str, body: Body, wait: float, options: Options) -> Any:
        data, headers = encode(body)
        data, headers = seal(self.codec, data, headers | _headers(options))
        query = {"wait": when_text(wait)} if wait else {}
        answer = self.request("POST", _path("jobs", policy, key), query, data, headers, extra=wait)
        if not isinstance(answer, dict) or not answer.get("job"):
            raise UnavailableError(0, {"detail": "what answers is no admitter"})
        return self._opened(answer)

    def _opened(self, answer: Any) -> Any:
        """Decodes the reply of a job that has ended."""
        reply = answer.get("reply", {})
        encoding = [values for name, values in reply.get("header", {}).items() if name.lower() == "content-encoding"]
        if self.codec and encoding == [[ENCODING]] and not reply.get("body_too_large"):
            plain = self.codec.decode(base64.b64decode(reply.pop("body_base64", "")) or reply.pop("body", "").encode())
            try:
                reply["body"] = plain.decode()
            except UnicodeDecodeError:
                reply["body_base64"] = base64.b64encode(plain).decode()
        return answer

    def _sealed(self, job: api.BatchJob) -> api.BatchJob:
        """Encodes a job of a batch."""
        if not self.codec:
            return job
        plain = base64.b64decode(job["base64"]) if "base64" in job else job["text"] if "text" in job else job.get("body")
        data, headers = encode(cast(Body, plain))
        data, headers = seal(self.codec, data, headers | job.get("headers", {}))
        return {"policy": job["policy"], "key": job["key"], "headers": headers,
                "base64": base64.b64encode(data).decode()}

    def batch(self, jobs: Iterable[api.BatchJob]) -> list[api.BatchLine]:
        """Stores up to 10,000 jobs, of at most 16 MiB. The answer has a line for each, in order: see batch_job."""
        text = b"\n".join(dumps(self._sealed(job)) for job in jobs)
        lines = self.request("POST", "/v1/jobs:batch", data=text,
                             headers={"Content-Type": "application/x-ndjson"})
        return cast(list[api.BatchLine], lines)

    def job(self, job: str, *, body: bool = False) -> api.Job | api.EndedJob:
        """Returns a job's state, or its outcome while that is kept."""
        return cast(api.Job | api.EndedJob, self.request("GET", _path("jobs", job), {"body": 1} if body else {}))

    def wait(self, job: str, timeout: float = 300, *,
             progress: Callable[[str], object] = lambda text: None) -> api.EndedJob:
        """Polls a job until it has ended. Its end must be remembered: by its idempotency_key, by the policy, or because
        it is a dead letter. Otherwise the Error has status 404. After the time-out, by default five minutes, it is a
        TimeoutError, and the job goes on. Meanwhile progress is called with the reports of the job's worker."""
        end, told, last = time.monotonic() + timeout, "", "not known"
        while True:
            pause, left = 0.0, max(end - time.monotonic(), 0.001)
            try:
                state = self.request("GET", _path("jobs", job), extra=min(left - self.timeout, 0))
                if state["state"] in ENDS:
                    return cast(api.EndedJob, state)
                last = state["state"]
                pause = (cast(api.Job, state).get("eta_ms") or 0) / 1000
                text = cast(api.Job, state).get("progress", "")
                if text and text != told:
                    progress(text)
                    told = text
            except UnavailableError as error:
                if time.monotonic() < end:  # a request ends with the wait
                    last = str(error)
            if time.monotonic() >= end:
                raise TimeoutError(f"job {job} has not ended within {timeout} s: {last}")
            time.sleep(min(max(pause, 0.05), 1, max(end - time.monotonic(), 0)))

    def cancel(self, job: str) -> api.Job:
        """Drops a job that has not started. An Error has status 409 if it runs, and 404 if it has ended."""
        return cast(api.Job, self.request("DELETE", _path("jobs", job)))

    def acquire(self, policy: str, key: str = "", *, wait: float = 30, priority: int = 0, cost: int = 1,
                costs: Mapping[str, int] = {}) -> Permit:
        """Waits for the start of a call that the program makes itself, at once, inside a `with` statement:

            with client.acquire("llm", "openai", costs={"tokens": 1200}) as permit:
                answer = ask()
                permit.used["tokens"] = answer.usage.total_tokens
        """
        asked = dumps({"priority": priority, "cost": cost, "costs": dict(costs)})
        path = _path("permits", policy, key)
        while True:
            lent = self.request("POST", path, {"wait": when_text(wait)}, asked, JSON, extra=wait)
            permit = Permit(self, path, lent)
            if time.monotonic() < permit.start_by:
                return permit
            permit.give_back()  # this process was held up

    def request(self, method: str, path: str, query: Mapping[str, object] = {}, data: bytes | None = None,
                headers: Mapping[str, str] = {}, *, extra: float = 0) -> Any:
        """Makes any request of the API, and returns its answer: a document, a list of them, or a text. `extra` seconds
        are allowed besides the time-out of the client."""
        target = self.base.path.rstrip("/") + path
        if query:
            target += "?" + urllib.parse.urlencode(query)
        try:
            connection = self._connection(self.timeout + extra)
            try:
                connection.request(method, target, data, {**self.headers, **headers})
                response = connection.getresponse()
                body = response.read()
            except BaseException:
                connection.close()
                raise
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(0, {"detail": f"{method} {path}: {error or type(error).__name__}"}) from error
        answer = _decode(response.getheader("Content-Type", ""), body)
        if response.status < 300:
            return answer
        problem = answer if isinstance(answer, dict) else {"title": response.reason}
        if response.status == 429:
            raise RefusedError(response.status, problem, _retry_after(problem, response))
        raise (UnavailableError if response.status in (503, 507) else Error)(response.status, problem)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        """Returns the thread's connection. One that the server has closed in the meantime is opened again."""
        kept: http.client.HTTPConnection | None = getattr(self.kept, "connection", None)
        if kept is None:
            host, port = self.base.hostname or "", self.base.port
            kept = self.kept.connection = (
                http.client.HTTPSConnection(host, port, context=self.context) if self.base.scheme == "https"
                else http.client.HTTPConnection(host, port))
        if kept.sock:
            with selectors.DefaultSelector() as ready:
                ready.register(kept.sock, selectors.EVENT_READ)
                if ready.select(0):
                    kept.close()
        kept.timeout = timeout
        if kept.sock:
            kept.sock.settimeout(timeout)
        return kept


class Permit:
    """Allows one call, which begins by `start_by` of time.monotonic(), or is given back. As a context it settles itself: an
    exception is a failure, RetryAfter pauses the bucket, Unavailable counts for its breaker."""

    def __init__(self, client: Client, path: str, lent: Mapping[str, Any]):
        self.client, self.path = client, path
        self.id: str = lent["permit"]
        self.lease: float = lent["lease_ms"] / 1000
        self.start_by = time.monotonic() + lent["start_within_ms"] / 1000
        self.counts = "max_delay_ms" in lent
        self.used: dict[str, int] = {}
        self.over = threading.Event()

    def settle(self, status: str | int = "done", *, error: str = "", retry_after: float = 0) -> None:
        """Reports how the call ended: done, fail, unavailable, retry-after, or the HTTP status of its answer; progress
        and answered renew the lease."""
        said = {"status": status, "error": error, "retry_after_ms": int(retry_after * 1000), "used": self.used}
        if status not in ("progress", "answered"):
            self.over.set()
        try:
            self.client.request("PUT", self.path, {"permit": self.id}, dumps(said), JSON)
        except Error as failed:
            if failed.status != 404:  # its lease is over, and so is the permit
                raise

    def answered(self) -> None:
        """Reports that the target's answer has begun: for a limit that counts from the answer, the call counts from now
        on, and no longer from its end."""
        if self.counts:
            self.settle("answered")

    def give_back(self) -> None:
        """Returns a permit whose call has not begun."""
        self.settle("returned")

    def __enter__(self) -> Permit:
        if self.lease:
            threading.Thread(target=self._renew, daemon=True, name="penstock lease").start()
        return self

    def _renew(self) -> None:
        while not self.over.wait(self.lease / 3):
            try:
                self.settle("progress")
            except Error:
                pass  # another try is due before the lease ends

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self.over.is_set():
            return
        said: dict[str, Any] = {"status": "done"} if error is None else ending(error)
        status = said["status"] if said["status"] in ("done", "retry-after", "unavailable") else "fail"
        try:
            self.settle(status, error=str(error or ""), retry_after=said.get("retry_after_ms", 0) / 1000)
        except UnavailableError:
            pass  # the call has ended, even if the admitter missed that


def batch_job(policy: str, key: str = "", body: Body = b"", **options: Unpack[Options]) -> api.BatchJob:
    """Returns a job for Client.batch."""
    job: api.BatchJob = {"policy": policy, "key": key}
    headers = _headers(options)
    if isinstance(body, bytes):
        job["base64"] = base64.b64encode(body).decode()
    elif isinstance(body, str):
        job["text"] = body
    else:
        job["body"] = body
    if headers:
        job["headers"] = headers
    return job


ENDS = ("done", "dead", "cancelled", "purged", "replayed")

NAMES = {"idempotency_key": "Idempotency-Key", "tags": "Penstock-Tag", "headers": "", "costs": "", "replace": ""}
"""Headers of options that have none of their own, or one of another name."""


def _headers(options: Options) -> dict[str, str]:
    headers = dict(options.get("headers", {}))
    for option, value in options.items():
        if option not in Options.__annotations__:
            raise TypeError(f"unknown option {option!r}")
        if name := NAMES.get(option, "Penstock-" + option.replace("_", "-").title()):
            headers[name] = (when_text(value) if option in ("deadline", "not_before", "timeout", "retention")
                             else ", ".join(value) if isinstance(value, list) else str(value))
    if options.get("unique") and options.get("replace"):
        headers["Penstock-Unique"] += "; replace"
    return headers | {f"Penstock-Cost-{name}": str(cost) for name, cost in options.get("costs", {}).items()}


def _decode(kind: str, body: bytes) -> Any:
    if "ndjson" in kind:
        return [json.loads(line) for line in body.splitlines()]
    if "json" in kind:
        return json.loads(body)
    return body.decode(errors="replace")


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(urllib.parse.quote(part, safe=":") for part in parts)


def _retry_after(problem: Mapping[str, Any], response: http.client.HTTPResponse) -> float:
    if "retry_after_ms" in problem:
        return float(problem["retry_after_ms"]) / 1000
    for name, unit in (("Retry-After-Ms", 0.001), ("Retry-After", 1.0)):
        if (value := response.getheader(name, "")).isdecimal():
            return int(value) * unit
    return 1.0
