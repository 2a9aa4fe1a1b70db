"""Makes 100 calls at once with OpenAI's SDK, at the base URL that it is given, and prints how many succeeded."""
import asyncio
import json
import sys

from openai import AsyncOpenAI

client = AsyncOpenAI(api_key="sk-openai", base_url=sys.argv[1])


def call():
    return client.chat.completions.create(
        model="gpt-x", max_tokens=100, messages=[{"role": "user", "content": "hello"}])


async def main():
    calls = await asyncio.gather(*(call() for _ in range(100)), return_exceptions=True)
    lost = [str(c) for c in calls if isinstance(c, Exception)]
    print(json.dumps({"done": len(calls) - len(lost), "lost": sorted(set(lost))}))


asyncio.run(main())
