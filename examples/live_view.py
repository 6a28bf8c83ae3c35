"""Watch a session live, from another process than the worker's: events as they become durable.

python examples/live_view.py file:///tmp/chats
"""

import asyncio
import sys

from snapshotter import aio, text_chunks


async def model():
    for word in ["Seen ", "as ", "it ", "goes."]:
        await asyncio.sleep(0.05)
        yield word


async def work(db, receipt):
    async with await db.boot(receipt=receipt) as session:
        async for turn in session.turns():
            async with turn:
                async for _ in turn.tee(text_chunks(model())):
                    pass


async def watch(db):
    text = ""
    async for event in db.follow("live", timeout=5.0, poll=0.05):
        chunk = event.record.get("chunk", {})
        if chunk.get("type") == "text-delta":
            text += chunk["delta"]
        if event.record.get("control") == "turn-complete":
            return text
    raise TimeoutError


async def main(url):
    async with aio.open(url, durability="live") as db:
        receipt = await db.send("live", "Go on.")
        text, _ = await asyncio.gather(watch(db), work(db, receipt))
        print(text)
        assert text == "Seen as it goes."
        print("ok")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://live"))
