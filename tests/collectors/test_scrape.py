"""Scraping real sockets: what each misbehaviour of a target is called, and that it costs only that target."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from collectors import scrape as scraping
from collectors.bodies import BodyTools
from collectors.dictionary import load_dictionary
from collectors.discovery import endpoint
from collectors.scrape import TargetScraper
from collectors.scrape_source import SourceScraper
from collectors.selfmetrics import SelfMetrics
from collectors.slots import Gathering, slot_of, slots_of
from core.classes import ClassRules
from core.config_models import ScrapeSource
from core.frames import Reading
from core.records import Problem
from core.roles import Roles
from tests.collectors.misbehaving import Answer, always, plain, raw_server
from tests.servers import find_program

TOOLS = BodyTools(load_dictionary(), ClassRules.from_config([]), Roles())


def vllm(n: int = 5, *, start: float = 1_700_000_000.0, requests: int = 7) -> bytes:
    """A small vLLM body."""
    own = 'engine="0",model_name="m"'
    return "\n".join(
        [
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {start}",
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{{{own}}} {n}.0",
            "# TYPE vllm:generation_tokens counter",
            f"vllm:generation_tokens_total{{{own}}} {n * 100}.0",
            "# TYPE vllm:time_to_first_token_seconds histogram",
            f'vllm:time_to_first_token_seconds_bucket{{{own},le="0.1"}} {requests - 2}.0',
            f'vllm:time_to_first_token_seconds_bucket{{{own},le="1.0"}} {requests - 1}.0',
            f'vllm:time_to_first_token_seconds_bucket{{{own},le="+Inf"}} {requests}.0',
            f"vllm:time_to_first_token_seconds_count{{{own}}} {requests}.0",
            f"vllm:time_to_first_token_seconds_sum{{{own}}} 1.25",
            "",
        ]
    ).encode()


class Caught:
    """What a scraper emitted."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.problems: list[Problem] = []
        self.metrics = SelfMetrics()

    @property
    def codes(self) -> set[str]:
        return {p.code for p in self.problems}


def source(**more: object) -> ScrapeSource:
    return ScrapeSource.model_validate({"name": "fleet", "targets": ["x"], "timeout": "1s", **more})


@asynccontextmanager
async def scraper_of(address: str, **more: object) -> AsyncIterator[tuple[TargetScraper, Caught]]:
    caught, src = Caught(), source(**more)
    pool = ThreadPoolExecutor(1)
    scraper = TargetScraper(
        endpoint(src, address, {"pool": "a"}), src, TOOLS,
        emit=caught.readings.append, problem=caught.problems.append, metrics=caught.metrics, tls=None, pool=pool,
    )  # fmt: skip
    try:
        yield scraper, caught
    finally:
        scraper.close()
        pool.shutdown()


async def one(answer: Answer, *, times: int = 1, **more: object) -> Caught:
    async with raw_server(answer) as port, scraper_of(f"127.0.0.1:{port}", **more) as (scraper, caught):
        for i in range(times):
            await scraper.scrape(1000.0 + 15 * i)
    return caught


async def fire(scraper: TargetScraper, t: float, *, settle: float = 0.3) -> None:
    """One scrape as the slots do it: in callbacks where that is possible."""
    together = Gathering()
    scraper.fire(t, together)
    await asyncio.sleep(settle)
    together.close()


def value(reading: Reading, signal: str) -> list[float]:
    """All slots of the one column of a signal."""
    (i,) = [i for i, c in enumerate(reading.layout.columns) if c.signal == signal]
    g, n, _ = reading.layout.slots[i]
    return [*map(float, reading.gauges[g]), *map(float, reading.counts[n])]


async def test_a_good_scrape_becomes_a_reading_of_absolute_values() -> None:
    caught = await one(always(plain(vllm(requests=7))))
    (r,) = caught.readings
    assert r.up
    assert r.t == 1000.0
    assert r.start == 1_700_000_000.0
    assert (r.target.pool, r.target.replica, r.target.components) == ("a", "127.0.0.1", ("vllm",))
    assert value(r, "ttft_seconds") == [5, 1, 1]
    assert value(r, "requests_running") == [5]
    assert caught.codes == set()


async def test_the_steady_path_reads_the_same_as_the_first_scrape() -> None:
    bodies = [vllm(n, requests=n) for n in range(5, 15)]

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            plain(bodies[min(len(caught.readings), 9)])
            if b"/metrics" in head
            else plain(b"", "404 Not Found")
        )
        return True

    async with raw_server(answer) as port, scraper_of(f"127.0.0.1:{port}") as (scraper, caught):
        for i in range(10):
            await fire(scraper, 1000.0 + 15 * i, settle=0.1)
            assert len(caught.readings) == i + 1
    assert [value(r, "requests_running") for r in caught.readings] == [[n] for n in range(5, 15)]
    assert [value(r, "ttft_seconds") for r in caught.readings] == [[n - 2, 1, 1] for n in range(5, 15)]
    assert len({r.layout.id for r in caught.readings}) == 1
    assert caught.codes == set()


async def test_the_request_asks_for_the_classic_text_format() -> None:
    heads: list[bytes] = []

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        heads.append(head)
        writer.write(plain(vllm()))
        return True

    await one(answer)
    assert heads[0].startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"\r\nAccept: text/plain;version=0.0.4\r\n" in heads[0]


async def hang(head: bytes, writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(60)
    return False


async def drip(head: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (hang, "scrape_timeout"),
        (drip, "scrape_timeout"),
        (always(plain(b"<html>oops</html>", "502 Bad Gateway")), "scrape_http_error"),
        (always(plain(b"", "401 Unauthorized")), "scrape_http_error"),
        (always(plain(b"<!DOCTYPE html><html><body>Login</body></html>")), "scrape_no_metrics"),
        (always(plain(json.dumps({"status": "ok"}).encode())), "scrape_no_metrics"),
        (always(plain(b"x 1\n" * 5_000_000)), "scrape_too_large"),
        (always(plain(vllm())[:-40], keep=False), "scrape_truncated"),
        (always(b"\x15\x03\x01\x00\x02\x02\x16", keep=False), "scrape_truncated"),
        (always(b"", keep=False), "scrape_reset"),
        (always(plain(b"", "302 Found", "Location: http://192.0.2.1/metrics\r\n")), "scrape_redirect"),
        (always(plain(b"", "302 Found", "Location: https://127.0.0.1/metrics\r\n")), "scrape_redirect"),
        (always(plain(b"", "307 Temporary Redirect", "Location: /metrics\r\n")), "scrape_http_error"),
        (always(plain(b"zzz", headers="Content-Encoding: gzip\r\n")), "scrape_bad_encoding"),
    ],
)  # fmt: skip
async def test_each_failure_is_named_with_target_and_fix_and_recorded_as_down(
    answer: Answer, code: str
) -> None:
    caught = await one(answer, max_bytes="10MB")
    (r,) = caught.readings
    assert not r.up
    assert r.layout.columns == ()
    assert code in caught.codes
    problem = next(p for p in caught.problems if p.code == code)
    assert problem.source == "fleet"
    assert problem.subject == r.target.address
    assert problem.fix
    assert problem.message


async def test_a_redirect_on_the_same_server_is_followed_and_remembered() -> None:
    asked: list[bytes] = []

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        asked.append(head.split()[1])
        moved = plain(b"", "307 Temporary Redirect", "Location: /metrics/\r\n")
        writer.write(moved if asked[-1] == b"/metrics" else plain(vllm()))
        return True

    caught = await one(answer, times=3)
    assert all(r.up for r in caught.readings)
    assert [a for a in asked if a.startswith(b"/metrics")] == [
        b"/metrics",
        b"/metrics/",
        b"/metrics/",
        b"/metrics/",
    ]


async def test_a_body_that_is_one_json_string_is_read() -> None:
    caught = await one(always(plain(json.dumps(vllm().decode()).encode())))
    assert value(caught.readings[0], "requests_running") == [5]


async def test_bytes_that_are_no_utf8_cost_only_their_line() -> None:
    caught = await one(always(plain(b'other{a="\xff\xfe"} 1\n' + vllm())))
    assert value(caught.readings[0], "requests_running") == [5]


async def test_a_compressed_answer_is_read() -> None:
    caught = await one(always(plain(gzip.compress(vllm()), headers="Content-Encoding: gzip\r\n")))
    assert value(caught.readings[0], "requests_running") == [5]


async def test_an_empty_body_is_up_without_values() -> None:
    (r,) = (await one(always(plain(b"")))).readings
    assert r.up
    assert r.layout.columns == ()


async def test_a_dead_target_is_recorded_each_interval_but_contacted_once_a_minute() -> None:
    contacts = 0

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal contacts
        contacts += 1
        writer.write(plain(b"", "500 Internal Server Error"))
        return True

    caught = await one(answer, times=50)
    assert len(caught.readings) == 50
    assert not any(r.up for r in caught.readings)
    assert contacts == 10 + 10  # ten in a row, then one of four


async def test_a_target_that_comes_back_is_up_again_and_its_backoff_forgotten() -> None:
    alive = False

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            plain(vllm()) if alive and b"/metrics" in head else plain(b"", "503 Service Unavailable")
        )
        return True

    async with raw_server(answer) as port, scraper_of(f"127.0.0.1:{port}") as (scraper, caught):
        for i in range(12):
            await scraper.scrape(1000.0 + 15 * i)
        alive = True
        for i in range(12, 18):
            await scraper.scrape(1000.0 + 15 * i)
    assert [r.up for r in caught.readings[-3:]] == [True] * 3
    assert scraper.failures == 0


async def test_the_version_is_asked_once_per_process_start() -> None:
    asked = 0
    start = 1_700_000_000.0

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal asked
        if b"GET /version" in head:
            asked += 1
            writer.write(plain(b'{"version": "0.32.%d"}' % asked))
        else:
            writer.write(plain(vllm(start=start)))
        return True

    async with raw_server(answer) as port, scraper_of(f"127.0.0.1:{port}", every="4s") as (scraper, caught):
        for i in range(4):
            await fire(scraper, 1000.0 + i, settle=0.1)
        start += 500
        for i in range(4, 8):
            await fire(scraper, 1000.0 + i, settle=0.1)
    assert asked == 2
    assert [r.target.version for r in caught.readings] == ["", *["0.32.1"] * 4, *["0.32.2"] * 3]


@pytest.mark.parametrize(
    "answer",
    [
        hang,
        always(plain(b"<html>")),
        always(plain(b'{"version": 7}')),
        always(plain(b'{"version": "\\u0000"}')),
    ],
)
async def test_an_unusable_version_answer_is_harmless(answer: Answer) -> None:
    async def both(head: bytes, writer: asyncio.StreamWriter) -> bool:
        if b"GET /version" in head:
            return await answer(head, writer)
        writer.write(plain(vllm()))
        return True

    caught = await one(both, times=3, every="2s")
    assert [r.up for r in caught.readings] == [True] * 3
    assert caught.codes == set()


async def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    seen: list[bytes] = []

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        seen.append(next((h for h in head.split(b"\r\n") if h.startswith(b"Authorization")), b""))
        writer.write(plain(vllm()))
        return True

    async with (
        raw_server(answer) as port,
        scraper_of(f"127.0.0.1:{port}", token_file=str(token)) as (scraper, caught),
    ):
        await fire(scraper, 1000.0, settle=0.1)
        await fire(scraper, 1015.0, settle=0.1)
        token.write_text("another")
        await fire(scraper, 1030.0, settle=0.1)
        token.unlink()
        await fire(scraper, 1045.0, settle=0.1)
    assert seen[0] == b"Authorization: Bearer one"
    assert seen[-1] == b"Authorization: Bearer another"
    assert [r.up for r in caught.readings] == [True, True, True, False]
    assert "token" in caught.problems[-1].message


async def test_a_new_series_makes_a_new_layout_and_the_old_one_comes_back_with_it_gone() -> None:
    bodies = [vllm(), vllm(), vllm() + b'vllm:num_preemptions_total{engine="0",model_name="m"} 3.0\n']

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(plain(bodies[min(len(caught.readings), 2)]))
        return True

    async with raw_server(answer) as port, scraper_of(f"127.0.0.1:{port}") as (scraper, caught):
        for i in range(4):
            await fire(scraper, 1000.0 + 15 * i, settle=0.1)
    layouts = [r.layout for r in caught.readings]
    assert layouts[0].id == layouts[1].id != layouts[2].id == layouts[3].id
    assert value(caught.readings[3], "preemptions_total") == [3]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's TLS settings with a certificate that nobody has signed."""
    program = find_program("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = [
        program,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


@pytest.mark.parametrize(("insecure", "up"), [(False, False), (True, True)])
async def test_an_unknown_certificate_is_refused_unless_told_otherwise(
    insecure: bool, up: bool, certificate: ssl.SSLContext
) -> None:
    caught = Caught()
    async with raw_server(always(plain(vllm())), tls=certificate) as port:
        src = source(targets=[f"https://127.0.0.1:{port}/metrics"], every="1s", insecure=insecure)
        runner = SourceScraper(
            src, TOOLS, emit=caught.readings.append, problem=caught.problems.append, metrics=caught.metrics
        )
        task = asyncio.create_task(runner.run())
        await asyncio.sleep(3.3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(caught.readings) >= 2
    assert all(r.up is up for r in caught.readings)
    assert caught.codes == (set() if up else {"scrape_tls"})


async def test_one_bad_target_costs_the_others_nothing() -> None:
    answers = [hang, drip, always(b"", keep=False), always(plain(b"<html>")), always(plain(vllm()))]
    caught = Caught()
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(raw_server(answer)) for answer in answers]
        a, b, c, d, good = ports
        src = source(targets=[f"127.0.0.1:{p}" for p in ports], every="1s", timeout="500ms")
        runner = SourceScraper(
            src, TOOLS, emit=caught.readings.append, problem=caught.problems.append, metrics=caught.metrics
        )
        task = asyncio.create_task(runner.run())
        await asyncio.sleep(4.6)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    by_port = {
        p: [r for r in caught.readings if r.target.address.endswith(f":{p}")] for p in (a, b, c, d, good)
    }
    assert 3 <= len(by_port[good]) <= 5
    assert all(r.up for r in by_port[good])
    for port in (a, b, c, d):
        assert len(by_port[port]) >= 3
        assert not any(r.up for r in by_port[port])
    gaps = [y.t - x.t for x, y in zip(by_port[good], by_port[good][1:], strict=False)]
    assert all(abs(g - 1.0) < 0.2 for g in gaps)
    assert {"scrape_timeout", "scrape_reset", "scrape_no_metrics"} <= caught.codes


async def test_a_body_of_a_hundred_thousand_series_holds_up_nobody() -> None:
    lines = [f'some_family_{i % 50}{{id="{i}",zone="a"}} {i}.5' for i in range(105_000)]
    huge = "\n".join([*lines, vllm().decode()]).encode()
    caught = Caught()
    async with raw_server(always(plain(huge))) as a, raw_server(always(plain(vllm()))) as b:
        src = source(targets=[f"127.0.0.1:{a}", f"127.0.0.1:{b}"], every="1s", timeout="1s")
        runner = SourceScraper(
            src, TOOLS, emit=caught.readings.append, problem=caught.problems.append, metrics=caught.metrics
        )
        task = asyncio.create_task(runner.run())
        end = time.monotonic() + 90
        while not any(r.up and r.target.address.endswith(f":{a}") for r in caught.readings):
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    good = [r for r in caught.readings if r.target.address.endswith(f":{b}")]
    assert good
    assert all(r.up for r in good)
    late = caught.metrics.missed._value.get()
    assert len(good) >= 0.5 * (good[-1].t - good[0].t), f"{late} were missed"
    assert "too_many_series" in caught.codes


async def test_targets_come_and_go_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    caught = Caught()
    async with raw_server(always(plain(vllm()))) as a, raw_server(always(plain(vllm()))) as b:
        file.write_text(json.dumps([{"targets": [f"127.0.0.1:{a}"]}]))
        src = source(targets=[], file_sd=[str(file)], every="400ms", timeout="300ms")
        runner = SourceScraper(
            src,
            TOOLS,
            emit=caught.readings.append,
            problem=caught.problems.append,
            metrics=caught.metrics,
            refresh=0.1,
        )
        task = asyncio.create_task(runner.run())
        await asyncio.sleep(1.2)
        file.write_text(json.dumps([{"targets": [f"127.0.0.1:{b}"], "labels": {"pool": "b"}}]))
        await asyncio.sleep(0.3)
        moved = time.time()
        await asyncio.sleep(1.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    before = {r.target.address for r in caught.readings if r.t < moved - 0.3}
    after = {(r.target.address, r.target.pool) for r in caught.readings if r.t > moved}
    assert before == {f"127.0.0.1:{a}"}
    assert after == {(f"127.0.0.1:{b}", "b")}


def test_slots_are_stable_and_even() -> None:
    assert slots_of(15.0) == 15
    assert slots_of(1.0) == 10
    found = [slot_of(f"http://10.0.0.{i}:8000/metrics", 15) for i in range(3000)]
    assert found == [slot_of(f"http://10.0.0.{i}:8000/metrics", 15) for i in range(3000)]
    counts = [found.count(s) for s in range(15)]
    assert min(counts) > 140
    assert max(counts) < 260


def test_backing_off_never_skips_more_than_a_minute() -> None:
    assert scraping.BACKOFF_SECONDS <= 60
    assert scraping.BACKOFF_AFTER >= 10
