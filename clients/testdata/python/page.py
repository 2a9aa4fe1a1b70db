"""A worker and callers, by docs/workers-protocol.md alone: page.py <server> <policy> <calls>"""
import json, sys, threading, time, uuid
from penstock.nats import Connection

server, policy, calls = sys.argv[1:]
nats, inbox, hear = Connection(server, "page"), "_INBOX." + uuid.uuid4().hex, {}

def say(to, op, id, n, **more):
    nats.publish(to, {}, json.dumps({"v": 1, "op": op, "id": id, "n": n, **more}).encode(), f"{inbox}.{id}-{n}")
def receive(m):
    id, n = m.subject.removeprefix(inbox + ".").split("-")
    hear[id](json.loads(m.headers.get("penstock-turn") or m.body or '{"state": "moved"}'), int(n), m)
def offered(offer):
    id, since = uuid.uuid4().hex, time.monotonic()
    def told(turn, _, go):
        if turn["state"] == "go" and time.monotonic() - since < 0.05:
            print("ran", go.body.decode(), flush=True)
            say(go.reply, "settle", id, 2, status="done")
    hear[id] = told
    say(offer.reply, "claim", id, 1, want="job", slots=1)
def call(id, owner=f"penstock.claim.{policy}.0", n=0, since=0.0):
    def claim(after=None):
        nonlocal n, since
        if after in (None, n):
            n, since = n + 1, time.monotonic()
            say(owner, "claim", id, n, want="permit", key="acme", partitions=1, wait_ms=30_000)
            threading.Timer(2, claim, [n]).start()
    def told(turn, of, _):
        nonlocal n
        if turn["state"] == "go" and of == n and time.monotonic() - since < 0.05:
            print("called", flush=True)
            n += 1
            say(owner, "settle", id, n, key="acme", status="done")
        elif of == n and turn["state"] in ("go", "offer", "moved"):
            threading.Timer(0.1 if turn["state"] == "moved" else 0, claim, [n]).start()
    hear[id] = told
    claim()
nats.subscribe(inbox + ".*", receive)
nats.subscribe(f"penstock.work.{policy}", offered, "workers")
for _ in range(int(calls)): call(uuid.uuid4().hex)
