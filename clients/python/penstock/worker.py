"""A worker, by the protocol of docs/workers-protocol.md."""

from __future__ import annotations

import json
import logging
import queue
import secrets
import signal
import ssl
import threading
import time
from collections import Counter
from typing import Any

from .job import ENCODING, Codec, Handler, Job, Unavailable, dumps, encode, ending, seal
from .nats import Connection, Message

log = logging.getLogger("penstock")

WINDOW = 0.05  # seconds that a claim is valid, by this process's monotonic clock
LOOK = 5  # seconds without an offer before the worker looks for a drainer


class Worker:
    """Runs the jobs of a policy in threads, at most `concurrency` at once. One bucket gets about three quarters of them,
    so that a target that hangs leaves room for the others:

        Worker("nats://127.0.0.1:4222", "charges", handle).run()
    """

    def __init__(self, url: str, policy: str, handle: Handler, *, concurrency: int = 4, prefix: str = "penstock",
                 context: ssl.SSLContext | None = None, codec: Codec | None = None):
        self.url, self.policy, self.handle, self.concurrency = url, policy, handle, concurrency
        self.prefix, self.context, self.codec = prefix, context, codec
        self.heard = 0.0  # when the last offer came
        self.claims: dict[str, float] = {}  # open claims, by token: when they were made
        self.jobs: dict[str, Job] = {}  # that run, by the token of their claim
        self.reports = 0  # outcomes that no valve has confirmed yet
        self.changed = threading.Condition()  # guards these three
        self.stopped = threading.Event()

    def start(self) -> None:
        """Connects, and works from then on."""
        self.nats = Connection(self.url, f"penstock worker of {self.policy}", self.context, self._told)
        self.offers = self.nats.subscribe(f"{self.prefix}.work.{self.policy}", self._offered, "workers")
        threading.Thread(target=self._look, daemon=True, name="penstock look").start()

    def run(self, grace: float = 30) -> None:
        """Works until SIGTERM or SIGINT, then calls stop. A second signal has its original effect."""
        told: queue.SimpleQueue[None] = queue.SimpleQueue()  # unlike an Event, fit for handlers of signals
        names = signal.SIGTERM, signal.SIGINT
        before = [signal.signal(name, lambda *_: told.put(None)) for name in names]
        self.start()
        told.get()
        for name, handler in zip(names, before):
            signal.signal(name, handler)
        self.stop(grace)

    def stop(self, grace: float = 30) -> None:
        """Stops taking jobs, and returns when the running ones have ended and been reported. After the grace period,
        their `stopping` asks them to end."""
        self.stopped.set()
        self.nats.unsubscribe(self.offers)
        time.sleep(WINDOW)  # a job that is claimed may still come
        with self.changed:
            if not self.changed.wait_for(self._idle, grace):
                for job in self.jobs.values():
                    job.returned = True
                    job.stopping.set()
                self.changed.wait_for(self._idle)
        self.nats.close()

    def _idle(self) -> bool:
        return not self.jobs and not self.reports

    def _look(self) -> None:
        """Reports once when offers cannot come, and once when they can again."""
        reported = ""
        while not self.stopped.wait(LOOK):
            if not self.nats.socket or time.monotonic() - self.heard < LOOK:
                continue  # the connection reports itself, and a valve that makes offers is there
            said = claim("claim", "look", want="job", slots=0)
            answer = self.nats.request(f"{self.prefix}.claim.{self.policy}.0", {}, 2, said)
            if answer is None or answer.headers.get("status") == "503":
                trouble = "no drainer owns it (start drainer, or admitter --drain), or there is none of that name"
            else:
                trouble = turn(answer).get("error", "")
            if trouble != reported:
                reported = trouble
                log.warning("policy %s: %s", self.policy, trouble or "its jobs can come now")

    def _offered(self, offer: Message) -> None:
        """Claims a job at once, or says that there is no room for one."""
        self.heard = now = time.monotonic()
        token = secrets.token_hex(8)
        with self.changed:
            self.claims = {t: at for t, at in self.claims.items() if now - at <= WINDOW}
            free = max(self.concurrency - len(self.claims) - len(self.jobs), 0)
            if self.stopped.is_set() or turn(offer).get("v") != 1:
                free = 0
            elif free:
                self.claims[token] = now
            keys = Counter(job.headers["penstock-key"] for job in self.jobs.values())
        full = [key for key, running in keys.items() if running > 3 * (free - 1)]
        self.nats.publish(offer.reply, {}, claim("claim", token, want="job", slots=free, **{"except": full}),
                          reply=f"{self.nats.inbox}.{token}")

    def _told(self, message: Message) -> None:
        """Takes the valve's answer to a claim."""
        token = message.subject.rpartition(".")[2]
        told = turn(message)
        with self.changed:
            if told.get("state") == "stop":
                if token in self.jobs:
                    self.jobs[token].returned = True
                    self.jobs[token].stopping.set()
                return
            claimed = self.claims.pop(token, 0.0)
            if told.get("state") != "go":
                return
            job = self.jobs[token] = Job(message.headers | started(told), message.body)
            if "max_delay_ms" in told:
                job.begun = lambda: self.nats.publish(message.reply, {}, claim("answered", token))
        # A daemon's threads are daemons by default: this one has a job to end.
        threading.Thread(target=self._run, args=(token, claimed, job, message.reply), daemon=False).start()

    def _run(self, token: str, claimed: float, job: Job, reply: str) -> None:
        ended = threading.Event()
        outcome, payload = {"status": "returned"}, None
        if time.monotonic() - claimed <= WINDOW:
            job.say = lambda text: self.nats.publish(reply, {}, claim("progress", token, progress=text))
            threading.Thread(target=self._progress, args=(job, ended), daemon=True).start()
            outcome, payload = self._outcome(job)
        ended.set()
        with self.changed:
            del self.jobs[token]
            self.reports += 1
        self._report(token, job, reply, outcome, payload)
        with self.changed:
            self.reports -= 1
            self.changed.notify_all()

    def _outcome(self, job: Job) -> tuple[dict[str, Any], bytes | None]:
        outcome: dict[str, Any] = {"status": "done"}
        reply = None
        encoded = job.headers.get("content-encoding") == ENCODING
        try:
            if encoded and not self.codec:
                raise Unavailable("the payload is encoded, and this worker has no codec")
            if encoded and self.codec:
                job.body = self.codec.decode(job.body)
            self.handle(job)
            reply = self._reply(job, encoded, outcome)
        except BaseException as error:  # SystemExit would end this thread, but not the job
            outcome = ending(error)
            if outcome["status"] == "permanent":
                try:
                    reply = self._reply(job, encoded, outcome)
                except Exception as failed:
                    log.warning("the reply of job %s", job.id, exc_info=failed)
            if job.returned and outcome["status"] in ("fail", "unavailable"):
                outcome["status"] = "returned"
            if outcome["status"] == "fail":
                log.warning("job %s, attempt %d", job.id, job.attempt, exc_info=error)
        return outcome | {"used": job.used}, reply

    def _reply(self, job: Job, encoded: bool, outcome: dict[str, Any]) -> bytes | None:
        """Returns the payload of an outcome, which it describes in it, cut to 1 KiB if it does not fit a message."""
        if job.reply is None:
            return None
        data, headers = seal(self.codec if encoded else None, *encode(job.reply))
        cut = len(data) > self.nats.most - (64 << 10)
        outcome["reply"] = {"header": {name: [value] for name, value in headers.items()}, "body_too_large": cut}
        return data[:1024] if cut else data

    def _progress(self, job: Job, ended: threading.Event) -> None:
        """Renews three times within the lease, in case one is lost. After that time the job should end."""
        began = time.monotonic()
        while not ended.wait(job.timeout / 3):
            job.say(job.said)
            if time.monotonic() - began >= job.timeout:
                job.stopping.set()

    def _report(self, token: str, job: Job, reply: str, outcome: dict[str, Any], payload: bytes | None) -> None:
        """Repeats the outcome until the valve answers or no longer waits for it."""
        said = claim("settle", token, **outcome)
        headers = {} if payload is None else {"Penstock-Turn": said.decode()}
        end = time.monotonic() + job.timeout
        while True:
            answer = self.nats.request(reply, headers, 1, said if payload is None else payload)
            if answer and "status" not in answer.headers:
                return
            if time.monotonic() > end:
                log.error("no valve heard that job %s is %s", job.id, outcome["status"])
                return
            time.sleep(0.1)


def claim(op: str, token: str, **more: Any) -> bytes:
    """Returns a message to a valve."""
    return dumps({"v": 1, "op": op, "id": token, "n": 1} | more)


def turn(message: Message) -> dict[str, Any]:
    """Returns a message of a valve, which is a header of one with a job."""
    try:
        told = json.loads(message.headers.get("penstock-turn") or message.body)
        return told if isinstance(told, dict) else {}
    except ValueError:
        return {}


def started(told: dict[str, Any]) -> dict[str, str]:
    """Returns the headers that a target gets with a job."""
    job = told["job"]
    return {"penstock-job": job["id"], "penstock-policy": job["policy"], "penstock-key": job["key"],
            "penstock-attempt": str(job["attempt"]), "penstock-timeout": str(told["lease_ms"]),
            "idempotency-key": job["idempotency_key"]}
