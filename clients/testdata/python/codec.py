"""Compresses payloads. Arguments: URL of a server, a token, and the URL of NATS."""

import gzip
import sys

import penstock

url, token, nats = sys.argv[1:]
codec = penstock.Codec(gzip.compress, gzip.decompress)


def handle(job):
    job.reply = f"{job.text()}, in python"


client = penstock.Client(url, token, codec=codec)
answer = client.run("go", "", {"from": "python"}, wait=60, max_attempts=1, timeout=30, retention="1h", unique="one",
                    replace=True)
print(answer["reply"]["body"], flush=True)
client.batch([penstock.batch_job("go", "batch", "a text", priority=3)])
penstock.Worker(nats, "jobs", handle, codec=codec).run()
