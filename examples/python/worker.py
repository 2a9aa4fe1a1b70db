#!/usr/bin/env python3
"""A Penstock worker in Python: it runs a command for each job that a valve gives it.

    worker.py --policy stripe -- curl --fail --data @- https://api.example.com/charges

The job's payload is the command's standard input; PENSTOCK_JOB, PENSTOCK_KEY, PENSTOCK_ATTEMPT and PENSTOCK_IDEMPOTENCY
say which job it is. Status 0 means done, 65 (EX_DATAERR) that no attempt can succeed, 75 (EX_TEMPFAIL) that the other
side is throttling and the whole bucket should pause, 69 (EX_UNAVAILABLE) that it is down, whatever the job, anything else
that this attempt failed.

It speaks the protocol of docs/workers-protocol.md with nothing but the standard library, so that it shows all of it: class
Client is as much of NATS as that needs (https://docs.nats.io/reference/reference-protocols/nats-protocol), class Worker
is the protocol. With nats-py installed, only Worker would remain. To run Python instead of a command, pass Worker a
function of your own.
"""

import argparse
import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

WINDOW = 0.05  # seconds that a claim counts, on this process's monotonic clock
LOOK = 5  # seconds without an offer after which the worker asks whether anybody is there to make one


class Message:
    def __init__(self, subject, reply, headers, body):
        self.subject, self.reply, self.headers, self.body = subject, reply, headers, body

    def header(self, name):
        return self.headers.get(name.lower(), "")


class Client:
    """One connection to a NATS server. It connects again for ever, and subscribes again when it has."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port or 4222)
        self.login = {"user": parts.username, "pass": parts.password} if parts.username else {}
        self.subscriptions = []  # (subject, queue group, callback)
        self.lock = threading.Lock()  # of writes
        self.socket = None
        self.inbox = "_INBOX." + secrets.token_hex(12)
        self.waiting = {}  # requests, by the last token of their reply subject
        self.subscribe(self.inbox + ".*", "", self.replied)
        threading.Thread(target=self.run, daemon=True).start()

    def subscribe(self, subject, group, callback):
        with self.lock:
            self.subscriptions.append((subject, group, callback))
            self.write(self.sub(len(self.subscriptions), subject, group))

    def unsubscribe(self, subject):
        with self.lock:
            for sid, (name, _, callback) in enumerate(self.subscriptions, 1):
                if name == subject:
                    self.subscriptions[sid - 1] = (None, "", callback)
                    self.write(b"UNSUB %d\r\n" % sid)

    @staticmethod
    def sub(sid, subject, group):
        return f"SUB {subject} {group} {sid}\r\n".encode() if group else f"SUB {subject} {sid}\r\n".encode()

    def publish(self, to, headers, body=b"", reply=""):
        head = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        head = head.encode()
        line = f"HPUB {to} {reply} {len(head)} {len(head) + len(body)}\r\n".encode()
        with self.lock:
            self.write(line + head + body + b"\r\n")

    def request(self, to, headers, timeout, body=b""):
        """Publishes and returns the reply, None when there was none in time."""
        token = secrets.token_hex(8)
        replied = threading.Event()
        self.waiting[token] = [replied, None]
        self.publish(to, headers, body, reply=f"{self.inbox}.{token}")
        replied.wait(timeout)
        return self.waiting.pop(token)[1]

    def replied(self, message):
        waiting = self.waiting.get(message.subject.rpartition(".")[2])
        if waiting:
            waiting[1] = message
            waiting[0].set()

    def write(self, data):
        """Sends if there is a connection. What is lost without one is said again by those who need an answer."""
        if self.socket:
            try:
                self.socket.sendall(data)
            except OSError:
                pass  # run notices it as well

    def run(self):
        while True:
            try:
                self.connection()
            except (OSError, ValueError) as error:
                print(f"connection to {self.address[0]}:{self.address[1]}: {error}", file=sys.stderr)
            with self.lock:
                self.socket = None
            time.sleep(0.25)

    def connection(self):
        with socket.create_connection(self.address, timeout=10) as s, s.makefile("rb") as lines:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.settimeout(300)  # servers send a PING every two minutes
            lines.readline()  # INFO {…}
            options = {"verbose": False, "headers": True, "no_responders": True, "lang": "python", "version": "1",
                       "name": "penstock worker", **self.login}
            with self.lock:
                s.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
                for sid, (subject, group, _) in enumerate(self.subscriptions, 1):
                    if subject:
                        s.sendall(self.sub(sid, subject, group))
                self.socket = s
            while line := lines.readline():
                words = line.split()
                if words[:1] == [b"PING"]:
                    with self.lock:
                        self.write(b"PONG\r\n")
                elif words[:1] in ([b"MSG"], [b"HMSG"]):
                    self.deliver(words, lines)
                elif line.startswith(b"-ERR 'Permissions Violation"):
                    print(line.decode(errors="replace").strip(), file=sys.stderr)
                elif words[:1] == [b"-ERR"]:
                    raise ValueError(line.decode(errors="replace").strip())
            raise ValueError("closed by the server")

    def deliver(self, words, lines):
        """MSG <subject> <sid> [reply] <bytes>, HMSG <subject> <sid> [reply] <bytes of headers> <bytes>"""
        sizes = 1 if words[0] == b"MSG" else 2
        total = int(words[-1])
        data = lines.read(total + 2)[:total]
        head = data[: int(words[-2])] if sizes == 2 else b""
        headers = {}
        for line in head.decode(errors="replace").split("\r\n")[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers.setdefault(name.lower(), value.strip())
        if head.startswith(b"NATS/1.0 "):
            headers["status"] = head[9:12].decode()  # 503: nobody listens
        reply = words[3].decode() if len(words) == 4 + sizes else ""
        subject, sid = words[1].decode(), int(words[2])
        self.subscriptions[sid - 1][2](Message(subject, reply, headers, data[len(head):]))


class Permanent(Exception):
    """No attempt can succeed."""


class RetryAfter(Exception):
    """The other side is throttling: the bucket pauses for so many seconds, or for the policy's backoff."""

    def __init__(self, text, seconds=0):
        super().__init__(text)
        self.seconds = seconds


class Unavailable(Exception):
    """The other side is down, whatever the job: when several jobs say so, the bucket waits until it is back."""


class Worker:
    """Runs jobs of one policy, at most room at once. handle(job, stopped) gets the job's message and an event that is set
    when the job should end; what it raises says how the attempt ended."""

    def __init__(self, client, policy, room, handle, prefix="penstock"):
        self.client, self.policy, self.room, self.handle = client, policy, room, handle
        self.subject = f"{prefix}.work.{policy}"
        self.valve = f"{prefix}.valve.{policy}.0"
        self.heard = 0.0  # when the last offer came
        self.inbox = "_INBOX." + secrets.token_hex(12)
        self.lock = threading.Lock()  # of the rest
        self.claims = {}  # by token: when it was claimed, or the running job's event
        self.stopping = False
        client.subscribe(self.inbox + ".*", "", self.told)
        client.subscribe(self.subject, "workers", self.offered)
        threading.Thread(target=self.look, daemon=True).start()

    def look(self):
        """Says once why no offer can come, and once that they can."""
        told = ""
        while not self.stopping:
            time.sleep(LOOK)
            if not self.client.socket or time.monotonic() - self.heard < LOOK:
                continue  # who connects says so, and who offers is there
            answer = self.client.request(self.valve, {}, 2, b'{"v":1,"op":"worker"}')
            trouble = ""
            if answer is None or answer.header("Status") == "503":
                trouble = "no drainer owns it, or there is none of that name"
            else:
                try:
                    trouble = json.loads(answer.body).get("error", "")
                except ValueError:
                    trouble = "its drainer is not understood"
            if trouble.startswith("unknown op"):  # an older drainer
                trouble = ""
            if trouble != told:
                print(f"policy {self.policy}: " + (trouble or "its jobs can come now"), file=sys.stderr, flush=True)
                told = trouble

    def offered(self, offer):
        """Step 2: claim or busy, at once."""
        self.heard = time.monotonic()
        token = secrets.token_hex(8)
        with self.lock:
            free = len(self.claims) < self.room and not self.stopping
            if free:
                self.claims[token] = time.monotonic()
        if not free or offer.header("Penstock-V") != "1":
            self.free(token)
            self.client.publish(offer.reply, {"Penstock-Status": "busy"})
            return
        self.client.publish(offer.reply, {"Penstock-Status": "claim"}, reply=f"{self.inbox}.{token}")
        timer = threading.Timer(WINDOW, self.expired, [token])
        timer.daemon = True
        timer.start()

    def free(self, token):
        with self.lock:
            self.claims.pop(token, None)

    def expired(self, token):
        with self.lock:
            if isinstance(self.claims.get(token), float):
                del self.claims[token]

    def told(self, message):
        """Step 3: what the valve says to the claim."""
        token = message.subject.rpartition(".")[2]
        status = message.header("Penstock-Status")
        with self.lock:
            claimed = self.claims.get(token)
            if status == "go" and isinstance(claimed, float):
                self.claims[token] = stopped = threading.Event()
            elif status == "stop" and isinstance(claimed, threading.Event):
                claimed.set()
            elif status != "go" and isinstance(claimed, float):
                del self.claims[token]
        if status != "go":
            return
        if isinstance(claimed, float):
            spawn(self.run, token, claimed, message, stopped)
        else:
            spawn(self.report, message, {"Penstock-Status": "late"})

    def run(self, token, claimed, job, stopped):
        """Steps 4 to 6."""
        ended = threading.Event()
        if time.monotonic() - claimed > WINDOW:
            outcome = {"Penstock-Status": "late"}
        else:
            spawn(self.progress, job, ended)
            try:
                self.handle(job, stopped)
                outcome = {"Penstock-Status": "done"}
            except Permanent as error:
                outcome = {"Penstock-Status": "permanent", "Penstock-Error": text(error)}
            except RetryAfter as error:
                outcome = {"Penstock-Status": "retry-after", "Penstock-Error": text(error)}
                if error.seconds > 0:
                    outcome["Penstock-Retry-After"] = int(error.seconds * 1000)
            except Exception as error:  # whatever it was, the attempt failed
                status = "returned" if stopped.is_set() else "fail"
                outcome = {"Penstock-Status": status, "Penstock-Error": text(error)}
                if isinstance(error, Unavailable):
                    outcome["Penstock-Unavailable"] = "true"
        ended.set()
        self.free(token)
        self.report(job, outcome)

    def progress(self, job, ended):
        """Three times within the time-out, so that one may be lost."""
        while not ended.wait(int(job.header("Penstock-Timeout")) / 3000):
            self.client.publish(job.reply, {"Penstock-Status": "progress"})

    def report(self, job, outcome):
        """Repeats the outcome until the valve answers, for as long as it may still wait for it."""
        end = time.monotonic() + int(job.header("Penstock-Timeout")) / 1000
        while True:
            answer = self.client.request(job.reply, outcome, 1)
            if answer and answer.header("Penstock-Status"):
                return
            if time.monotonic() > end:
                print(f"nobody heard that {job.header('Penstock-Job')} is {outcome['Penstock-Status']}", file=sys.stderr)
                return
            time.sleep(0.1)

    def stop(self):
        """Takes no more jobs."""
        with self.lock:
            self.stopping = True
        self.client.unsubscribe(self.subject)


def spawn(f, *args):
    """Runs f in a thread that the process waits for. By itself a thread is like the one that starts it: a daemon."""
    threading.Thread(target=f, args=args, daemon=False).start()


def text(error):
    """One line, fit for a header."""
    return " ".join(str(error).split())[:1000]


def command(argv):
    """Returns a handler that runs a command."""

    def handle(job, stopped):
        environment = {
            **os.environ,
            "PENSTOCK_JOB": job.header("Penstock-Job"),
            "PENSTOCK_KEY": job.header("Penstock-Key"),
            "PENSTOCK_ATTEMPT": job.header("Penstock-Attempt"),
            "PENSTOCK_IDEMPOTENCY": job.header("Idempotency-Key"),
        }
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
            finished = threading.Event()

            def watch():
                while not finished.wait(0.1):
                    if stopped.is_set():
                        process.terminate()

            spawn(watch)
            try:
                _, errors = process.communicate(job.body)
            finally:
                finished.set()
        said = f"status {process.returncode}: {errors.decode(errors='replace')}"
        if process.returncode == os.EX_DATAERR:
            raise Permanent(said)
        if process.returncode == os.EX_TEMPFAIL:
            raise RetryAfter(said)
        if process.returncode == os.EX_UNAVAILABLE:
            raise Unavailable(said)
        if process.returncode != 0:
            raise RuntimeError(said)

    return handle


def main():
    parser = argparse.ArgumentParser(description="Runs a command for each job of a Penstock policy.")
    parser.add_argument("--nats-url", default="nats://127.0.0.1:4222")
    parser.add_argument("--prefix", default="penstock")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--room", type=int, default=4, help="jobs at once (default 4)")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()

    client = Client(arguments.nats_url)
    worker = Worker(client, arguments.policy, arguments.room, command(arguments.command), arguments.prefix)
    told = queue.SimpleQueue()  # unlike an Event, fit for handlers of signals: its put never waits
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: told.put(None))
    told.get()
    worker.stop()  # the threads of running jobs keep the process until they have reported


if __name__ == "__main__":
    main()
