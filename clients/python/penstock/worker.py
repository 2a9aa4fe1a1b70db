"""A worker, by the protocol of docs/workers-protocol.md."""

from __future__ import annotations

import logging
import json
import queue
import secrets
import signal
import ssl
import threading
import time

from .job import ENCODING, Again, Codec, Handler, Job, Permanent, RetryAfter, Unavailable, encode, one_line, seal
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
        self.inbox = "_INBOX." + secrets.token_hex(12)

    def start(self) -> None:
        """Connects, and works from then on."""
        self.nats = Connection(self.url, f"penstock worker of {self.policy}", self.context)
        self.nats.subscribe(self.inbox + ".*", self._told)
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
            answer = self.nats.request(f"{self.prefix}.valve.{self.policy}.0", {}, 2, b'{"v":1,"op":"worker"}')
            trouble = ""
            if answer is None or answer.headers.get("status") == "503":
                trouble = "no drainer owns it (start drainer, or admitter --drain), or there is none of that name"
            else:
                try:
                    trouble = json.loads(answer.body).get("error", "")
                except ValueError:
                    trouble = "its drainer is not understood"
            if trouble != reported:
                reported = trouble
                log.warning("policy %s: %s", self.policy, trouble or "its jobs can come now")

    def _offered(self, offer: Message) -> None:
        """Step 2: claim, busy or crowded, at once."""
        self.heard = now = time.monotonic()
        token = secrets.token_hex(8)
        key = offer.headers.get("penstock-key", "")
        with self.changed:
            self.claims = {t: at for t, at in self.claims.items() if now - at <= WINDOW}
            free = self.concurrency - len(self.claims) - len(self.jobs)
            same = sum(job.headers.get("penstock-key") == key for job in self.jobs.values())
            if free <= 0 or self.stopped.is_set() or offer.headers.get("penstock-v") != "1":
                answer = "busy"
            else:
                answer = "crowded" if same > 3 * (free - 1) else "claim"
            if answer == "claim":
                self.claims[token] = now
        self.nats.publish(offer.reply, {"Penstock-Status": answer},
                          reply=f"{self.inbox}.{token}" if answer == "claim" else "")

    def _told(self, message: Message) -> None:
        """Step 3: the valve's answer to a claim."""
        token = message.subject.rpartition(".")[2]
        status = message.headers.get("penstock-status")
        with self.changed:
            if status == "stop":
                if token in self.jobs:
                    self.jobs[token].returned = True
                    self.jobs[token].stopping.set()
                return
            claimed = self.claims.pop(token, 0.0)
            if status != "go":
                return
            job = Job(message.headers, message.body)
            self.jobs[token] = job
        # A daemon's threads are daemons by default: this one has a job to end.
        threading.Thread(target=self._run, args=(token, claimed, job, message.reply), daemon=False).start()

    def _run(self, token: str, claimed: float, job: Job, reply: str) -> None:
        """Steps 4 to 6."""
        ended = threading.Event()
        answer = b""
        if time.monotonic() - claimed > WINDOW:
            outcome = {"Penstock-Status": "late"}
        else:
            job.say = lambda text: self.nats.publish(reply, {"Penstock-Status": "progress"}, text.encode())
            threading.Thread(target=self._progress, args=(job, ended), daemon=True).start()
            outcome, answer = self._outcome(job)
        ended.set()
        with self.changed:
            del self.jobs[token]
            self.reports += 1
        self._report(job, reply, outcome, answer)
        with self.changed:
            self.reports -= 1
            self.changed.notify_all()

    def _outcome(self, job: Job) -> tuple[dict[str, str], bytes]:
        outcome, reply = {"Penstock-Status": "done"}, b""
        encoded = job.headers.get("content-encoding") == ENCODING
        try:
            if encoded and not self.codec:
                raise Unavailable("the payload is encoded, and this worker has no codec")
            if encoded and self.codec:
                job.body = self.codec.decode(job.body)
            self.handle(job)
            reply = self._reply(job, encoded, outcome)
        except Permanent as error:
            outcome = {"Penstock-Status": "permanent", "Penstock-Error": one_line(error)}
            try:
                reply = self._reply(job, encoded, outcome)
            except Exception as failed:
                log.warning("the reply of job %s", job.id, exc_info=failed)
        except Again as error:
            outcome = {"Penstock-Status": "returned", "Penstock-Again": str(error)}
        except RetryAfter as error:
            outcome = {"Penstock-Status": "retry-after", "Penstock-Error": one_line(error)}
            if error.seconds > 0:
                outcome["Penstock-Retry-After"] = str(int(error.seconds * 1000))
        except BaseException as error:  # SystemExit would end this thread, but not the job
            status = "returned" if job.returned else "fail"
            outcome = {"Penstock-Status": status, "Penstock-Error": one_line(error) or type(error).__name__}
            if isinstance(error, Unavailable):
                outcome["Penstock-Unavailable"] = "true"
            elif not job.returned:
                log.warning("job %s, attempt %d", job.id, job.attempt, exc_info=error)
        return outcome | {f"Penstock-Used-{name}": str(cost) for name, cost in job.used.items()}, reply

    def _reply(self, job: Job, encoded: bool, outcome: dict[str, str]) -> bytes:
        """Returns the payload of an outcome, which it describes in a header, cut to 1 KiB if it does not fit a message."""
        if job.reply is None:
            return b""
        data, headers = seal(self.codec if encoded else None, *encode(job.reply))
        cut = len(data) > self.nats.most - (64 << 10)
        described = {"header": {name: [value] for name, value in headers.items()}, "body_too_large": cut}
        outcome["Penstock-Reply"] = json.dumps(described)
        return data[:1024] if cut else data

    def _progress(self, job: Job, ended: threading.Event) -> None:
        """Renews three times within the time-out, in case one is lost. After the time-out the job should end."""
        started = time.monotonic()
        while not ended.wait(job.timeout / 3):
            job.say(job.said)
            if time.monotonic() - started >= job.timeout:
                job.stopping.set()

    def _report(self, job: Job, reply: str, outcome: dict[str, str], payload: bytes) -> None:
        """Repeats the outcome until the valve answers or no longer waits for it."""
        end = time.monotonic() + job.timeout
        while True:
            answer = self.nats.request(reply, outcome, 1, payload)
            if answer and answer.headers.get("penstock-status"):
                return
            if time.monotonic() > end:
                log.error("no valve heard that job %s is %s", job.id, outcome["Penstock-Status"])
                return
            time.sleep(0.1)
