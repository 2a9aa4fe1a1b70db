"""Submits what same.ts does. Arguments: a URL, and a token."""

import sys

import penstock

client = penstock.Client(*sys.argv[1:])
body = {"to": "Zoë \"🐟\" \\ </a>\n\x00\x7f\u2028", "half": "\ud83d", "n": [1, -2.5, None, True, {}, []], "ü": 1e-3}
for answer in (client.submit("mail", "acme", body, idempotency_key="1"),
               client.batch([penstock.batch_job("mail", "acme", body, idempotency_key="1")])[0]):
    print(answer["job"], answer.get("duplicate", False))
