"""Runs jobs that end as their payloads say. Arguments: URL of NATS, policy, and "target" for an HTTP target."""

import os
import sys
import threading
import wsgiref.simple_server

import penstock

throttled, snoozed, released = threading.Event(), threading.Event(), threading.Event()


def handle(job):
    payload = job.text()
    # in one write, because jobs run in threads
    print(f"ran {job.key} {job.attempt} {job.id} {job.idempotency_key} {payload}\n", end="", flush=True)
    job.used["tokens"] = 3
    match payload.split(",")[0]:
        case "fail":
            raise ValueError("it will not do")
        case "exit":
            sys.exit("\udcff left")  # as names of files may be
        case "permanent":
            raise penstock.Permanent("never")
        case "down":
            raise penstock.Unavailable("nobody there")
        case "throttled" if not throttled.is_set():
            throttled.set()
            raise penstock.RetryAfter("slow down", 0.1)
        case "again" if not snoozed.is_set():
            snoozed.set()
            raise penstock.Again(0.1)
        case "slow":
            threading.Event().wait(2)
        case "far":
            job.progress("20 %")
            job.progress("40 %")
            released.wait()
            job.reply = {"far": job.key}
        case "near":
            released.set()
            job.reply = "near"
            raise penstock.Permanent("too near")
        case "large":
            job.reply = b"x" * (9 << 20)
        case "answered":
            job.answered()
            raise ValueError("it answered")
        case "stuck":
            job.stopping.wait()
            raise TimeoutError("told to end")


if sys.argv[3:] == ["target"]:
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, penstock.target(handle, b"0123456789abcdef"))
    print(f"ready http=127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
else:
    penstock.Worker(*sys.argv[1:3], handle, concurrency=3).run(float(os.environ.get("GRACE", "30")))
