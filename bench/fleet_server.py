"""A fast loopback fleet: each address 127.A.B.C on one port is another engine whose body moves every interval.

``python -m bench.fleet_server PORT EVERY STEPS`` serves until its stdin closes. Who asked how often is counted by user agent and
answered under ``/stats`` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

from bench.bodies import load_pair, sequence

PROFILES = 12


class Fleet:
    """Bodies of all profiles and the counts of requests."""

    def __init__(self, every: float, steps: int) -> None:
        pair = load_pair()
        self.every, self.steps, self.begin = every, steps, time.time()
        self.answers = [[_answer(b) for b in sequence(pair, steps, seed)] for seed in range(PROFILES)]
        self.requests: Counter[str] = Counter()

    def answer(self, address: str) -> bytes:
        """What the engine at ``address`` exports now."""
        number = hash_of(address)
        step = int((time.time() - self.begin + number % 1000 / 1000 * self.every) / self.every)
        return self.answers[number % PROFILES][min(step, self.steps - 1)]


def hash_of(address: str) -> int:
    """A number of an IPv4 address."""
    a, b, c, d = (int(x) for x in address.split("."))
    return ((a * 31 + b) * 31 + c) * 257 + d


def _answer(body: bytes) -> bytes:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Connection(asyncio.Protocol):
    """Answers each GET at once."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.buffer, self.address = fleet, b"", ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.address = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            if head.startswith(b"GET /stats "):
                answer = _answer(json.dumps({"requests": self.fleet.requests}).encode())
            elif head.startswith(b"GET /metrics "):
                agent = head.lower().partition(b"user-agent:")[2].partition(b"\r\n")[0]
                self.fleet.requests["prometheus" if b"prometheus" in agent else "gustfront"] += 1
                answer = self.fleet.answer(self.address)
            else:
                answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            self.transport.write(answer)


async def main() -> None:
    """Serve until stdin closes."""
    port, every, steps = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    fleet = Fleet(every, steps)
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Connection(fleet), "0.0.0.0", port, backlog=2048)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
