"""One ``scrape`` source: keeps a :class:`TargetScraper` running for each endpoint that discovery names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from collectors.bodies import BodyTools
from collectors.discovery import Discovery
from collectors.scrape import TargetScraper, tls_context
from collectors.selfmetrics import SelfMetrics
from core.config_models import ScrapeSource
from core.frames import Reading
from core.records import Problem

log = logging.getLogger(__name__)

REFRESH_SECONDS = 5.0


class SourceScraper:
    """Runs until cancelled; targets come and go with discovery, none waits for another."""

    def __init__(
        self,
        source: ScrapeSource,
        tools: BodyTools,
        *,
        emit: Callable[[Reading], None],
        problem: Callable[[Problem], None],
        metrics: SelfMetrics,
        refresh: float = REFRESH_SECONDS,
    ) -> None:
        self.source = source
        self._tools, self._emit, self._problem, self._metrics, self._refresh = (
            tools,
            emit,
            problem,
            metrics,
            refresh,
        )
        self._discovery = Discovery(source, problem)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="first-read")
        self._tls = tls_context(source)
        self._running: dict[str, tuple[TargetScraper, asyncio.Task[None]]] = {}

    @property
    def scrapers(self) -> list[TargetScraper]:
        """The scrapers now running."""
        return [s for s, _ in self._running.values()]

    async def run(self) -> None:
        """Follow discovery and scrape, for ever."""
        try:
            while True:
                try:
                    await self._follow()
                except OSError as error:
                    log.warning("discovery of %s failed: %s", self.source.name or "scrape", error)
                await asyncio.sleep(self._refresh)
        finally:
            tasks = [task for _, task in self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _follow(self) -> None:
        wanted = {e.key: e for e in await self._discovery.refresh()}
        for key in self._running.keys() - wanted.keys():
            self._running.pop(key)[1].cancel()
        for key, endpoint in wanted.items():
            known = self._running.get(key)
            if known is not None and not known[1].done():
                continue
            if known is not None and not known[1].cancelled() and (error := known[1].exception()) is not None:
                log.error("the scraper of %s ended: %r; it is started again", endpoint.url, error)
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
                self._problem(
                    Problem(
                        time.time(),
                        self.source.name or "scrape",
                        "sd_bad_target",
                        endpoint.address[:200],
                        f"The address cannot be scraped: {error}.",
                        "Write host:port.",
                    )
                )
                continue
            self._running[key] = (scraper, asyncio.create_task(scraper.run()))
        self._metrics.targets.labels(self.source.name or "scrape").set(len(self._running))
        self._metrics.targets_up.labels(self.source.name or "scrape").set(
            sum(bool(s.up) for s in self.scrapers)
        )
