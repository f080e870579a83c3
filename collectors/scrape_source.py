"""One ``scrape`` source: keeps a :class:`TargetScraper` running for each endpoint that discovery names."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from collectors.bodies import BodyTools
from collectors.discovery import Discovery, Endpoint
from collectors.scrape import TargetScraper
from collectors.scrape_access import tls_context
from collectors.selfmetrics import SelfMetrics
from collectors.shards import ALL, Shard
from collectors.slots import Gathering, slot_of, slots_of
from core.config_models import ScrapeSource
from core.frames import Reading
from core.records import Problem

log = logging.getLogger(__name__)

REFRESH_SECONDS = 5.0
TOGETHER_SECONDS = 0.1
"""How long answers of one slot wait for one another."""


class SourceScraper:
    """Runs until cancelled; targets come and go with discovery, none waits for another.

    The interval is divided into slots. At each slot's time all its targets are asked together, and given up together at the
    timeout: one timer for many targets.
    """

    def __init__(
        self,
        source: ScrapeSource,
        tools: BodyTools,
        *,
        emit: Callable[[Reading], None],
        problem: Callable[[Problem], None],
        metrics: SelfMetrics,
        refresh: float = REFRESH_SECONDS,
        shard: Shard = ALL,
    ) -> None:
        self.source, self._shard = source, shard
        self._name = source.name or "scrape"
        self._tools, self._emit, self._problem, self._metrics, self._refresh = (
            tools,
            emit,
            problem,
            metrics,
            refresh,
        )
        self._discovery = Discovery(source, problem)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        self._tls = tls_context(source)
        self._running: dict[str, TargetScraper] = {}
        self._followed: list[Endpoint] | None = None
        self._slots: list[dict[str, TargetScraper]] = [{} for _ in range(slots_of(source.every))]

    async def run(self) -> None:
        """Follow discovery and scrape, for ever."""
        following = asyncio.create_task(self._follow_for_ever())
        try:
            await self._tick_for_ever(following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            for scraper in self._running.values():
                scraper.close()
            self._running.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _tick_for_ever(self, following: asyncio.Task[None]) -> None:
        count = len(self._slots)
        width = self.source.every / count
        loop = asyncio.get_running_loop()
        tick = math.floor(time.time() / width)
        while True:
            tick += 1
            late = time.time() - tick * width
            if late > self.source.every or late < -self.source.every:
                if late > 0:
                    log.warning(
                        "%s: the collector was held up for %.0f s; scrapes of that time are missing",
                        self._name,
                        late,
                    )
                    self._metrics.missed.inc(len(self._running) * int(late // self.source.every))
                tick = math.floor(time.time() / width) + 1  # also after the clock was set
                late = time.time() - tick * width
            await asyncio.sleep(max(0.0, -late))
            if following.done():
                following.result()
            self._metrics.late.set(max(0.0, time.time() - tick * width))
            fired = []
            together = Gathering()
            together.expect()  # the firing itself
            for scraper in self._slots[tick % count].values():
                t = time.time()
                if scraper.fire(t, together):
                    fired.append((scraper, t))
            together.miss()
            if fired:
                loop.call_later(TOGETHER_SECONDS, together.close)
                loop.call_later(self.source.timeout, _expire, fired)

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                await self._follow()
            except OSError as error:
                log.warning("discovery of %s failed: %s", self._name, error)
            await asyncio.sleep(self._refresh)

    async def _follow(self) -> None:
        found = await self._discovery.refresh()
        self._metrics.targets_up.labels(self._name).set(sum(bool(s.up) for s in self._running.values()))
        if found is self._followed:
            return
        self._followed = found
        wanted = {e.key: e for e in found if self._shard.has_url(e.url)}
        for key in self._running.keys() - wanted.keys():
            self._running.pop(key).close()
            self._slots[slot_of(key, len(self._slots))].pop(key, None)
        for key, endpoint in wanted.items():
            if key in self._running:
                continue
            try:
                scraper = TargetScraper(
                    endpoint,
                    self.source,
                    self._tools,
                    emit=self._emit,
                    problem=self._problem,
                    metrics=self._metrics,
                    tls=self._tls,
                    pool=self._pool,
                )
            except ValueError as error:
                text, fix = f"The address cannot be scraped: {error}.", "Write host:port."
                self._problem(
                    Problem(time.time(), self._name, "sd_bad_target", endpoint.address[:200], text, fix)
                )
                continue
            self._running[key] = self._slots[slot_of(key, len(self._slots))][key] = scraper
        self._metrics.targets.labels(self._name).set(len(self._running))


def _expire(fired: list[tuple[TargetScraper, float]]) -> None:
    for scraper, t in fired:
        scraper.expire(t)
