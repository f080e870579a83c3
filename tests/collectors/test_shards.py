"""Several collectors divide the sources: each has exactly one reader, and the same as in Prometheus."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collectors.selfmetrics import METRICS
from collectors.service import run_collect, spool_folder
from collectors.shards import ALL, MOST_SHARDS, Shard, hashmod
from core.config_models import Config, SourceConfig
from core.errors import ConfigError
from sql.store import Store
from tests.collectors.misbehaving import always, plain, raw_server
from tests.collectors.test_scrape import vllm

ROOT = Path(__file__).resolve().parents[2]


def test_the_hash_is_that_of_prometheus() -> None:
    """``baz`` and 1000 are of Prometheus's own tests of relabelling; the address was hashed by md5sum."""
    assert hashmod("baz", 1000) == 976
    assert hashmod("10.0.0.7:8000", 2**64) == 0x9DDC470D58EA42F6
    assert Shard.parse("7/8").has_url("http://10.0.0.7:8000/metrics")


@given(st.integers(1, MOST_SHARDS), st.text(max_size=40))
def test_each_name_belongs_to_exactly_one_shard(of: int, name: str) -> None:
    owners = [n for n in range(1, of + 1) if Shard(n, of).has(name)]
    assert len(owners) == 1
    assert of == 1 or owners == [hashmod(name, of) + 1]


def test_shards_divide_a_fleet_exactly_and_evenly() -> None:
    urls = [f"http://10.0.{i // 250}.{i % 250}:8000/metrics" for i in range(2000)]
    parts = [{u for u in urls if Shard(n, 8).has_url(u)} for n in range(1, 9)]
    assert sum(map(len, parts)) == len(urls)
    assert set().union(*parts) == set(urls)
    assert all(200 <= len(p) <= 300 for p in parts)


@pytest.mark.parametrize(
    "text", ["9/8", "0/8", "x", "", "3", "3/", "/8", "1/0", "-1/8", "3/8/9", "1/99999", "1.5/8", "٣/8"]
)
def test_a_wrong_shard_says_what_to_write_instead(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Shard.parse(text)
    assert "--shard" in str(caught.value)
    assert "3/8" in caught.value.fix


def test_the_command_refuses_a_wrong_shard_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "gustfront.yaml"
    file.write_text(f"database: sqlite:///{tmp_path}/g.db\n")
    argv = [sys.executable, "-m", "app.cli", "--config", str(file), "collect", "--shard", "9/8"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--shard: of 8 shards there is no number 9 (got '9/8'). Fix: give NUMBER/OF" in done.stderr
    assert not (tmp_path / "g.db").exists()


def test_shards_keep_spools_of_their_own() -> None:
    database = "sqlite:////data/g.db"
    assert spool_folder(database) == spool_folder(database, ALL) == Path("/data/g.db-spool")
    assert spool_folder(database, Shard(3, 8)) == Path("/data/g.db-spool-3-of-8")


async def test_collectors_of_all_shards_together_scrape_each_target_once(tmp_path: Path) -> None:
    """Three collectors at the same time over one database; a target has one connection, from the one it belongs to."""
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(raw_server(always(plain(vllm())))) for _ in range(6)]
        addresses = [f"127.0.0.1:{p}" for p in ports]
        scrape = {"name": "fleet", "targets": addresses, "every": "500ms", "timeout": "400ms"}
        config = Config.model_validate(
            {"database": f"sqlite:///{tmp_path}/g.db", "sources": [{"scrape": scrape}]}
        )
        Store.open(config.database).close()
        stop = threading.Event()
        shards = [Shard(n, 3) for n in (1, 2, 3)]
        tasks = [asyncio.create_task(run_collect(config, stop, s)) for s in shards]
        wanted = [float(sum(s.has(a) for a in addresses)) for s in shards]
        end = time.monotonic() + 20
        try:
            with Store.open(config.database, read_only=True) as store:
                while [_scraped(store, s) for s in shards] != wanted or len(store.targets()) < 6:
                    assert time.monotonic() < end, [_scraped(store, s) for s in shards]
                    await asyncio.sleep(0.2)
        finally:
            stop.set()
            await asyncio.gather(*tasks)
    assert sum(wanted) == 6


def _scraped(store: Store, shard: Shard) -> float:
    """How many targets a collector says that it scrapes."""
    text = store.get_cursor(f"{METRICS}.{shard.name}") or ""
    families = {f.name: f for f in text_string_to_metric_families(text)}
    family = families.get("gustfront_scrape_targets")
    return sum(s.value for s in family.samples) if family else 0.0


def test_a_server_or_a_file_has_one_collector_by_its_name() -> None:
    sources = [
        SourceConfig.model_validate(s)
        for s in (
            {"prometheus": {"url": "http://prometheus:9090"}},
            {"prometheus": {"url": "http://prometheus:9090", "name": "main"}},
            {"requests": {"file": "gateway.jsonl"}},
            {"outputs": {"file": "answers.jsonl"}},
        )
    ]
    for source in sources:
        owners = [n for n in range(1, 9) if Shard(n, 8).has_source(source)]
        assert owners == [hashmod(source.name, 8) + 1]
    scrape = SourceConfig.model_validate({"scrape": {"targets": ["a:1"]}})
    assert all(Shard(n, 8).has_source(scrape) for n in range(1, 9)), "each has a part of its targets"
