"""Labelled histories on disk through the whole way in: a real Prometheus, back-fill, importers, then the back-test."""

from __future__ import annotations

import json
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bench.histories import configuration
from bench.judged import JUDGES, LAG, Judged, code, keep
from collectors.backfill import backfill
from collectors.dictionary import load_dictionary
from collectors.outputs import import_outputs
from collectors.requests import import_requests
from core.classes import ClassRules
from core.config_sources import PrometheusSource
from core.roles import Roles
from detectors.backtest import backtest
from sql.store import Store


def judge_labelled(source: Path) -> Judged:
    """One history (``tsdb.tar.zst``, answers, gateway log, ``truth.json``), judged as the simulated ones are."""
    text = (source / "truth.json").read_bytes()
    truth: dict[str, Any] = json.loads(text)
    mark = f"{code((*JUDGES, 'collectors'))}-{blake2b(text, digest_size=4).hexdigest()}"
    found, seconds = keep(f"labelled-{source.name}", mark, lambda: through(source))
    return Judged(truth["scenario"], int(truth.get("seed", 0)), truth, found, seconds)


def through(source: Path) -> list[dict[str, Any]]:
    """Incidents of a labelled history, by the way that a user's data take."""
    from tests.conftest import unpack_scenario
    from tests.servers import prometheus_server

    with tempfile.TemporaryDirectory(prefix="gustfront-bench-") as at:
        folder = Path(at)
        config = configuration(folder)
        scenario = unpack_scenario(source, folder)
        rules, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
        with Store.open(config.database) as store:
            with prometheus_server(scenario.tsdb) as url:
                server = PrometheusSource(url=url, selector='{job!=""}')
                backfill(store, server, load_dictionary(), rules, roles, scenario.start, scenario.end)
            import_outputs(store, scenario.requests, rules, roles, config=config)
            import_requests(store, scenario.gateway, rules, roles, config=config)
            return [i.as_json() for i in backtest(store, config, scenario.start, scenario.end, LAG)]
