"""Calls a server. Arguments: its URL, a token, and the URL of an API."""

import sys
import urllib.request

import penstock

url, token, api = sys.argv[1:]
client = penstock.Client(url, token)


def asked(call):
    """Repeats a call while a job has not reached its drainer yet."""
    while True:
        try:
            return call()
        except penstock.UnavailableError:
            pass


first = client.submit("mail", "acme/ü b.c", {"to": "ann"}, idempotency_key="1", tags=["a", "b"], priority=2,
                      not_before=3600)
again = client.submit("mail", "acme/ü b.c", {"to": "ann"}, idempotency_key="1")
print("submit", first["job"], again["job"], again["duplicate"])
job = asked(lambda: client.job(first["job"], body=True))
print("job", job["key"], job["body"], job["priority"], " ".join(job["tags"]))
try:
    client.submit("mail", prio=2)
    print("a misspelt option is ignored")
except TypeError:
    pass
try:
    client.wait(first["job"], 0.1)
except TimeoutError as error:
    print(error.args[0].replace("0.1 s", "0.1"))
print("cancel", asked(lambda: client.cancel(first["job"]))["state"], client.wait(first["job"], 60)["state"])

client.submit("mail", "", b"\x00\xff")
client.submit("mail", "", "text")
try:
    client.submit("mail")
except penstock.RefusedError as refused:
    print("refused", refused.status, refused.reason, refused.retry_after > 0)

lines = client.batch([penstock.batch_job("mail", "b", {"n": 1}, cost=1), penstock.batch_job("mail", "b", "text"),
                      {"policy": "none", "key": "b"}])
print("batch", *(line["status"] for line in lines))

for body in ("good", "refuse"):
    ended = client.run("echo", "k", body, path="/x", headers={"Penstock-Forward-X-User": "u"})
    print("run", ended["end"], ended["reply"]["status"], ended["reply"]["body"])

try:
    client.job("mail:999")
except penstock.Error as error:
    print("missing", error.status, error.problem["title"])
for other in ("http://127.0.0.1:1", api):
    try:
        penstock.Client(other).submit("mail")
    except penstock.UnavailableError as error:
        print("unavailable", error.status)

with client.acquire("calls", "openai", costs={"tokens": 60}) as permit:
    permit.used["tokens"] = 10  # which leaves room for 90
with client.acquire("calls", "openai", costs={"tokens": 90}):
    print("permit", permit.lease > 0)
try:
    client.acquire("calls", "openai", costs={"tokens": 50}, wait=0.1)
except penstock.RefusedError as refused:
    print("too late", refused.reason, refused.retry_after > 1)
client.acquire("calls", "other").give_back()

for path in ("/good", "/throttle"):
    try:
        with client.acquire("paced"):
            with urllib.request.urlopen(api + path) as answer:
                print("fetch", answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        print("fetch", error.code, error.read().decode())
try:
    with client.acquire("paced", "paused"):
        raise penstock.RetryAfter(seconds=60)
except penstock.RetryAfter:
    pass
try:
    client.acquire("paced", "paused", wait=0.1)
except penstock.RefusedError as refused:
    print("paused", refused.retry_after > 1)
