"""A small load generator that measures what a client sees, and cancels two requests on purpose.

TTFT here is from the moment the request is sent to the first streamed chunk that carries text.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import aiohttp

SENTENCE = "a request waits in the queue until the engine has a free slot and enough blocks for its context"
WORDS = SENTENCE.split()


@dataclass
class Seen:
    """What the client saw: TTFT in seconds of every answered request, failures, and how many were cancelled where."""

    ttft: list[float] = field(default_factory=list)
    finished: int = 0
    failed: int = 0
    cancelled_queued: int = 0
    cancelled_streaming: int = 0


def _prompt(rng: random.Random, prefixes: list[str]) -> str:
    start = rng.choice(prefixes) + " " if rng.random() < 0.6 else ""
    return start + " ".join(rng.choices(WORDS, k=rng.choice([5, 20, 60, 150])))


async def _one(session: aiohttp.ClientSession, url: str, body: dict[str, object], seen: Seen) -> None:
    sent, first = time.perf_counter(), None
    try:
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            if answer.status != 200:
                seen.failed += 1
                return
            async for line in answer.content:
                if first is None and line.startswith(b"data: {"):
                    first = time.perf_counter() - sent
                    seen.ttft.append(first)
    except aiohttp.ClientError:
        seen.failed += 1
        return
    seen.finished += 1


async def _cancel_streaming(
    session: aiohttp.ClientSession, url: str, body: dict[str, object], seen: Seen
) -> None:
    """Leave after the first token."""
    sent = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                seen.ttft.append(time.perf_counter() - sent)
                seen.cancelled_streaming += 1
                return


async def _cancel_queued(
    session: aiohttp.ClientSession, url: str, body: dict[str, object], seen: Seen
) -> None:
    """Leave before any token came."""
    got_first = False

    async def read() -> None:
        nonlocal got_first
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    got_first = True
                    return

    task = asyncio.create_task(read())
    await asyncio.sleep(0.25)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not got_first:
        seen.cancelled_queued += 1


async def drive(
    url: str,
    model: str,
    requests: int,
    concurrency: int,
    *,
    max_tokens: int = 24,
    seed: int = 7,
    crowd: int = 48,
) -> Seen:
    """Send ``requests`` streamed completions, ``concurrency`` at a time; then a crowd, in which two are cancelled."""
    rng, seen = random.Random(seed), Seen()
    prefixes = [" ".join(rng.choices(WORDS, k=80)) for _ in range(4)]
    gate = asyncio.Semaphore(concurrency)

    def body(tokens: int) -> dict[str, object]:
        return {
            "model": model, "prompt": _prompt(rng, prefixes), "max_tokens": tokens, "stream": True, "temperature": 1.0,
            "ignore_eos": True,
        }  # fmt: skip

    async def gated() -> None:
        async with gate:
            await _one(session, url, body(rng.choice([4, 12, max_tokens])), seen)

    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(gated() for _ in range(requests)))
        # The crowd fills every slot, so that the next request certainly waits.
        waiting = [asyncio.create_task(_one(session, url, body(32), seen)) for _ in range(crowd)]
        await asyncio.sleep(0.5)
        await _cancel_queued(session, url, body(64), seen)
        await asyncio.gather(*waiting)
        await _cancel_streaming(session, url, body(100), seen)
    return seen
