"""As much of NATS as a worker needs: https://docs.nats.io/reference/reference-protocols/nats-protocol"""

from __future__ import annotations

import itertools
import json
import logging
import queue
import re
import secrets
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import BinaryIO, NamedTuple

log = logging.getLogger("penstock")

RETRY = 0.25  # seconds between two attempts to connect
SILENCE = 20  # seconds between pings: a server that is silent for three times as long is given up


class Message(NamedTuple):
    subject: str
    reply: str
    headers: dict[str, str]  # names in lower case; "status" is 503 without a responder
    body: bytes


class Connection:
    """A connection to one of some servers, nats://[user:password@ | token@]host:port or tls://…, separated by commas. It
    connects again until it is closed, and subscribes again when it has. What is published meanwhile is lost: the
    protocol of workers repeats what needs an answer."""

    def __init__(self, url: str, name: str, context: ssl.SSLContext | None = None,
                 told: Callable[[Message], None] = lambda message: None):
        self.servers = [urllib.parse.urlsplit(one if "//" in one else "nats://" + one) for one in url.split(",")]
        self.name, self.context = name, context
        self.lock = threading.Lock()  # of writes, and of what follows
        self.subscriptions: dict[int, tuple[str, str, Callable[[Message], None]]] = {}
        self.last = 0  # id of a subscription
        self.socket: socket.socket | None = None
        self.closed = threading.Event()
        self.said: set[str] = set()  # of this outage
        self.most = 1 << 20  # bytes of a message
        self.told = told  # takes messages to the inbox that answer no request
        self.waiting: dict[str, queue.SimpleQueue[Message]] = {}  # requests, by token
        user = self.servers[0].username or ""
        allowed = user + "." if self.servers[0].password and re.fullmatch("[A-Za-z0-9_-]+", user) else ""
        self.inbox = "_INBOX." + allowed + secrets.token_hex(12)  # as the role worker allows
        self.subscribe(self.inbox + ".*", self._replied)
        self.reader = threading.Thread(target=self._run, daemon=True, name="penstock nats")
        self.reader.start()
        threading.Thread(target=self._ping, daemon=True, name="penstock nats ping").start()

    def subscribe(self, subject: str, callback: Callable[[Message], None], group: str = "") -> int:
        """Has a callback run for each message, by the thread that reads: it must not wait."""
        with self.lock:
            self.last += 1
            self.subscriptions[self.last] = subject, group, callback
            self._write(self._sub(self.last))
            return self.last

    def unsubscribe(self, sid: int) -> None:
        with self.lock:
            if self.subscriptions.pop(sid, None):
                self._write(b"UNSUB %d\r\n" % sid)

    def publish(self, subject: str, headers: Mapping[str, str], body: bytes = b"", reply: str = "") -> None:
        head = ("NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode()
        line = f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}\r\n".encode()
        with self.lock:
            self._write(line + head + body + b"\r\n")

    def request(self, subject: str, headers: Mapping[str, str], timeout: float, body: bytes = b"") -> Message | None:
        """Publishes, and returns the reply; None: there was none in time."""
        token = secrets.token_hex(8)
        replies = self.waiting[token] = queue.SimpleQueue()
        self.publish(subject, headers, body, f"{self.inbox}.{token}")
        try:
            return replies.get(timeout=timeout)
        except queue.Empty:
            return None
        finally:
            del self.waiting[token]

    def close(self) -> None:
        self.closed.set()
        self._hang_up()
        self.reader.join()

    def _replied(self, message: Message) -> None:
        waiting = self.waiting.get(message.subject.rpartition(".")[2])
        (waiting.put if waiting else self.told)(message)

    def _sub(self, sid: int) -> bytes:
        subject, group, _ = self.subscriptions[sid]
        return f"SUB {subject} {group} {sid}\r\n".encode()

    def _write(self, data: bytes) -> None:
        if self.socket:
            try:
                self.socket.sendall(data)
            except OSError:
                self._hang_up()  # a message may be there in part

    def _hang_up(self) -> None:
        s = self.socket
        if s:
            try:
                s.shutdown(socket.SHUT_RDWR)  # ends a read and a write that wait
            except OSError:
                pass

    def _ping(self) -> None:
        """Has a server that lives say something, before the reader gives it up."""
        while not self.closed.wait(SILENCE):
            with self.lock:
                self._write(b"PING\r\n")

    def _run(self) -> None:
        for server in itertools.cycle(self.servers):
            if self.closed.is_set():
                return
            try:
                self._connection(server)
            except (OSError, ValueError) as error:
                what = str(error) if "-ERR" in str(error) else ""  # a refusal is told also after other errors
                if not self.closed.is_set() and what not in self.said:
                    log.warning("NATS at %s: %s", server.netloc.rpartition("@")[2], error)
                    self.said.add(what)
            self.socket = None
            self.closed.wait(RETRY)

    def _connection(self, server: urllib.parse.SplitResult) -> None:
        host = server.hostname or "127.0.0.1"
        s = socket.create_connection((host, server.port or 4222), timeout=10)
        try:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with s.makefile("rb", 0) as first:  # without what follows INFO, which may be the start of TLS
                line = first.readline()
            if not line:
                raise ValueError("closed by the server")
            info = json.loads(line.removeprefix(b"INFO "))
            self.most = info.get("max_payload", self.most)
            if server.scheme == "tls" or self.context or info.get("tls_required"):
                s = (self.context or ssl.create_default_context()).wrap_socket(s, server_hostname=host)
            options = {"verbose": False, "headers": True, "no_responders": True, "lang": "python", "version": "1",
                       "name": self.name}
            if server.password is not None:
                options |= {"user": urllib.parse.unquote(server.username or ""),
                            "pass": urllib.parse.unquote(server.password)}
            elif server.username:
                options["auth_token"] = urllib.parse.unquote(server.username)
            with s.makefile("rb") as lines:
                s.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
                if not (line := lines.readline()).startswith(b"PONG"):
                    raise ValueError(line.decode(errors="replace").strip() or "closed by the server")
                s.settimeout(3 * SILENCE)
                with self.lock:
                    for sid in self.subscriptions:
                        s.sendall(self._sub(sid))
                    self.socket = s
                if self.said:
                    log.warning("NATS at %s is connected", server.netloc.rpartition("@")[2])
                    self.said.clear()
                if self.closed.is_set():
                    return
                self._read(lines)
        finally:
            self._hang_up()  # a write may still wait
            s.close()

    def _read(self, lines: BinaryIO) -> None:
        while line := lines.readline():
            words = line.split()
            match words[0] if words else b"":
                case b"MSG" | b"HMSG":
                    self._deliver(words, lines)
                case b"PING":
                    with self.lock:
                        self._write(b"PONG\r\n")
                case b"-ERR":
                    text = line.decode(errors="replace").strip()
                    if "Permissions Violation" not in text:
                        raise ValueError(text)
                    log.error("NATS: %s", text)
        raise ValueError("closed by the server")

    def _deliver(self, words: list[bytes], lines: BinaryIO) -> None:
        """MSG <subject> <sid> [reply] <bytes>, HMSG <subject> <sid> [reply] <bytes of headers> <bytes>"""
        sizes = 1 if words[0] == b"MSG" else 2
        total = int(words[-1])
        data = lines.read(total + 2)[:total]
        head = data[: int(words[-2])] if sizes == 2 else b""
        headers: dict[str, str] = {}
        for line in head.decode(errors="replace").split("\r\n")[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers.setdefault(name.lower(), value.strip())
        if head.startswith(b"NATS/1.0 "):
            headers["status"] = head[9:12].decode()
        reply = words[3].decode() if len(words) == 4 + sizes else ""
        with self.lock:
            subscription = self.subscriptions.get(int(words[2]))
        if subscription:
            subscription[2](Message(words[1].decode(), reply, headers, data[len(head):]))
