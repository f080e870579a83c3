"""The HTTP client of the scraper against real sockets: framing, limits, deadlines, broken peers."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.http_parts import Response, WireError, get_request
from collectors.wire import Session
from tests.collectors.misbehaving import Answer, always, plain, raw_server

GET = get_request("host", "/metrics", {"Accept": "text/plain"})


async def fetch(answer: Answer, *, timeout: float = 5.0, limit: int = 2**20) -> Response:
    async with raw_server(answer) as port:
        session = Session("127.0.0.1", port)
        try:
            return await session.get(GET, timeout=timeout, limit=limit)
        finally:
            session.close()


async def failure(answer: Answer, *, timeout: float = 5.0, limit: int = 2**20) -> str:
    with pytest.raises(WireError) as caught:
        await fetch(answer, timeout=timeout, limit=limit)
    return caught.value.kind


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_body_with_length_is_returned_whole() -> None:
    got = await fetch(always(plain(b"up 1\n")))
    assert (got.status, got.body) == (200, b"up 1\n")


async def test_one_connection_serves_many_requests() -> None:
    connections = set()

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        connections.add(writer)
        writer.write(plain(b"x"))
        return True

    async with raw_server(answer) as port:
        session = Session("127.0.0.1", port)
        for _ in range(5):
            assert (await session.get(GET, timeout=2, limit=100)).body == b"x"
        session.close()
    assert len(connections) == 1


async def test_a_kept_connection_that_the_server_closed_is_replaced_silently() -> None:
    async with raw_server(always(plain(b"x"), keep=False)) as port:
        session = Session("127.0.0.1", port)
        for _ in range(5):
            assert (await session.get(GET, timeout=2, limit=100)).body == b"x"
        session.close()


@pytest.mark.parametrize("pace", [1, 3, 7, 1000])
async def test_an_answer_in_pieces_of_any_size_is_put_together(pace: int) -> None:
    body = b"a metric 1\n" * 20
    data = CHUNKED + chunked(body, 13)

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        for i in range(0, len(data), pace):
            writer.write(data[i : i + pace])
            await asyncio.sleep(0)
        return True

    assert (await fetch(answer)).body == body


@settings(max_examples=30, deadline=None)
@given(
    body=st.binary(max_size=3000),
    size=st.integers(1, 700),
    mode=st.sampled_from(["length", "chunked", "close", "gzip"]),
)
def test_every_framing_gives_back_the_body(body: bytes, size: int, mode: str) -> None:
    data = {
        "length": plain(body),
        "chunked": CHUNKED + chunked(body, size),
        "close": b"HTTP/1.1 200 OK\r\n\r\n" + body,
        "gzip": plain(gzip.compress(body, mtime=0), headers="Content-Encoding: gzip\r\n"),
    }[mode]
    assert asyncio.run(fetch(always(data, keep=mode != "close"))).body == body


async def test_an_interim_answer_is_skipped() -> None:
    assert (await fetch(always(b"HTTP/1.1 103 Early Hints\r\n\r\n" + plain(b"x")))).body == b"x"


async def test_a_refused_connection_is_named() -> None:
    async with raw_server(always(b"")) as port:
        pass
    with pytest.raises(WireError) as caught:
        await Session("127.0.0.1", port).get(GET, timeout=2, limit=100)
    assert caught.value.kind == "refused"


async def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(WireError) as caught:
        await Session("no-such-host.invalid", 80).get(GET, timeout=10, limit=100)
    assert caught.value.kind == "dns"


async def test_a_silent_server_costs_the_timeout_and_no_more() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(60)
        return False

    begin = asyncio.get_running_loop().time()
    assert await failure(answer, timeout=0.3) == "timeout"
    assert asyncio.get_running_loop().time() - begin < 2


async def test_a_body_that_drips_is_cut_off_at_the_timeout() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
        return True

    assert await failure(answer, timeout=0.5) == "timeout"


async def test_an_announced_length_beyond_the_limit_is_refused_before_reading() -> None:
    assert (
        await failure(always(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n"), limit=1000)
        == "too_large"
    )


@pytest.mark.parametrize("head", [CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_an_endless_body_stops_at_the_limit(head: bytes) -> None:
    sent = 0

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(head)
        while True:
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()
            sent += 1000

    assert await failure(answer, limit=100_000) == "too_large"
    assert sent < 20_000_000


async def test_a_compression_bomb_stops_at_the_limit() -> None:
    bomb = gzip.compress(b"0" * 50_000_000, mtime=0)
    assert (
        await failure(always(plain(bomb, headers="Content-Encoding: gzip\r\n")), limit=10**6) == "too_large"
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "truncated"),
        (CHUNKED + b"5\r\nab", "truncated"),
        (b"HTTP/1.1 200", "truncated"),
        (b"", "reset"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n", "bad_http"),
        (CHUNKED + b"zz\r\n", "bad_http"),
        (CHUNKED + b"-1\r\nabc\r\n", "bad_http"),
        (CHUNKED + b"2\r\nabcd\r\n0\r\n\r\n", "bad_http"),
        (b"x" * 100_000, "bad_http"),
        (plain(b"not gzip", headers="Content-Encoding: gzip\r\n"), "bad_encoding"),
        (plain(b"x", headers="Content-Encoding: br\r\n"), "bad_encoding"),
        (
            plain(gzip.compress(b"abc" * 1000, mtime=0)[:-12], headers="Content-Encoding: gzip\r\n"),
            "truncated",
        ),
    ],
)
async def test_a_broken_answer_is_named(data: bytes, kind: str) -> None:
    assert await failure(always(data, keep=False)) == kind


async def test_deflate_is_understood() -> None:
    got = await fetch(always(plain(zlib.compress(b"up 1\n"), headers="Content-Encoding: deflate\r\n")))
    assert got.body == b"up 1\n"


async def test_data_nobody_asked_for_ends_the_connection() -> None:
    async with raw_server(always(plain(b"x") + b"HTTP/1.1 200 OK\r\n\r\npoison")) as port:
        session = Session("127.0.0.1", port)
        for _ in range(3):
            assert (await session.get(GET, timeout=2, limit=100)).body == b"x"
            await asyncio.sleep(0.02)
        session.close()


@pytest.mark.parametrize("path", ["/a\r\nX: y", "/a b", "/a\x00"])
def test_a_request_cannot_be_smuggled_in_an_address(path: str) -> None:
    with pytest.raises(ValueError, match="control characters"):
        get_request("host", path, {})


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_whatever_crash_the_client(data: bytes) -> None:
    async def attempt(raw: bytes) -> None:
        with contextlib.suppress(WireError):
            await fetch(always(raw, keep=False), timeout=2)

    asyncio.run(attempt(data))
    asyncio.run(attempt(b"HTTP/1.1 200 OK\r\n" + data))
    asyncio.run(attempt(CHUNKED + data))
