"""What Gustfront says about itself, read by the reference parser."""

from __future__ import annotations

import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from app.api_metrics import render_metrics
from collectors.selfmetrics import METRICS, SelfMetrics
from sql.store import Store


def test_the_collectors_own_metrics_stand_beside_the_apps_without_a_name_given_twice(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'x.db'}") as store:
        store.set_cursor(METRICS, SelfMetrics().text())
        text = render_metrics(lambda: store, time.time()).decode()
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
    assert {"gustfront_store_up", "gustfront_scrape_targets", "gustfront_spool_bytes"} <= set(names)
