"""What the collector says about itself: scrape durations, failures, drops, lag, spool.

The metrics live in the collector's process; a snapshot is stored with each heartbeat, so that the app, another process, can show
and export them under ``/metrics``.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

HEARTBEAT = "collect.heartbeat"
"""Name of the cursor that holds the Unix time of the collector's last heartbeat."""
METRICS = "collect.metrics"
"""Name of the cursor that holds the collector's metrics in the Prometheus text format."""


class SelfMetrics:
    """The collector's own metrics, in a registry of their own. ``shard`` (``3/8``) keeps those of several collectors apart."""

    def __init__(self, shard: str = "") -> None:
        self.cursor = f"{METRICS}.{shard}" if shard else METRICS
        r = self.registry = CollectorRegistry()
        self._good: list[float] = []
        self.scrapes = Counter(
            "gustfront_scrapes",
            "Scrapes finished, by outcome (ok or the problem's code).",
            ["outcome"],
            registry=r,
        )
        self.scrape_seconds = Histogram(
            "gustfront_scrape_duration_seconds",
            "From sending the request to the values being mapped.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=r,
        )
        self.missed = Counter(
            "gustfront_scrapes_missed",
            "Scrapes that were due while the collector itself was late.",
            registry=r,
        )
        self.late = Gauge("gustfront_scrape_late_seconds", "How late the last scrape started.", registry=r)
        self.targets = Gauge("gustfront_scrape_targets", "Targets now scraped.", ["source"], registry=r)
        self.targets_up = Gauge(
            "gustfront_scrape_targets_up", "Targets whose last scrape worked.", ["source"], registry=r
        )
        self.queued = Gauge(
            "gustfront_readings_queued", "Readings in memory that wait for the next commit.", registry=r
        )
        self.written = Counter("gustfront_readings_written", "Readings handed to the database.", registry=r)
        self.rejected = Counter(
            "gustfront_readings_rejected", "Readings that the database refused one by one.", registry=r
        )
        self.commit_seconds = Histogram(
            "gustfront_commit_duration_seconds",
            "Time of one commit.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=r,
        )
        self.commit_failures = Counter("gustfront_commit_failures", "Commits that failed.", registry=r)
        self.lag = Gauge(
            "gustfront_commit_lag_seconds", "Age of the oldest reading of the last commit.", registry=r
        )
        self.source_lag = Gauge(
            "gustfront_source_lag_seconds",
            "Age of the newest sample of a Prometheus server.",
            ["source"],
            registry=r,
        )
        self.imported = Counter(
            "gustfront_lines_imported", "Lines of followed files imported.", ["file"], registry=r
        )
        self.spool_bytes = Gauge(
            "gustfront_spool_bytes", "Readings on disk that wait for the database.", registry=r
        )
        self.spool_dropped = Gauge(
            "gustfront_spool_dropped_readings", "Readings given up because the spool was full.", registry=r
        )
        self.heartbeat = Gauge(
            "gustfront_collect_heartbeat_timestamp_seconds", "Last heartbeat of the collector.", registry=r
        )

    def scraped(self, seconds: float) -> None:
        """Note a good scrape; cheap, since it happens for each."""
        self._good.append(seconds)

    def text(self) -> str:
        """All metrics in the Prometheus text format."""
        good, self._good = self._good, []
        self.scrapes.labels("ok").inc(len(good))
        for seconds in good:
            self.scrape_seconds.observe(seconds)
        return generate_latest(self.registry).decode()
