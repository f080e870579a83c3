"""Month report, status page, proposals and the gate, on a month of a small log."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.services.month_report import month_report
from app.services.month_text import to_csv, to_html, to_json, write_report
from app.services.propose import propose, rounded_up
from app.services.slo_report import lines
from app.services.status_page import status_html
from core.config import Config, parse_config
from core.incidents import Incident
from core.records import RequestRecord
from core.requests import fine_edges, fold
from core.windows import month_span
from sql.store import Store

START, END = month_span("2026-09")
HOSTILE = "<script>alert(1)</script>"
CONFIG = """
classes: [{name: chat, match: ['workload="chat"']}]
slos:
  - {name: "=chat-ttft", class: chat, signal: ttft, threshold: 1s, objective_percent: 99, window: 28d}
"""


def log(hours: range, late: int = 1, tenant: str = "acme") -> list[RequestRecord]:
    """Six attempts an hour each ten minutes; ``late`` of them late."""
    return [
        RequestRecord(
            ts=START + 3600 * h + 600 * k + 30,
            workload_class="chat",
            tenant=tenant,
            pool="chat-secret-7",
            status=200,
            ttft_s=2.0 if j < late else 0.3,
            duration_s=3.0,
            prompt_tokens=400,
            output_tokens=50,
        )
        for h in hours
        for k in range(6)
        for j in range(10)
    ]


@pytest.fixture(scope="module")
def config() -> Config:
    return parse_config(CONFIG)


@pytest.fixture
def store(tmp_path: Path, config: Config) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'm.db'}") as made:
        edges = fine_edges(config.request_thresholds)
        made.add_requests(fold(log(range(720), 0), edges))
        made.add_requests(fold(log(range(100, 124), 5, HOSTILE), edges))
        made.save_incident(
            Incident(
                id="one",
                kind="kv_eviction_storm",
                severity="page",
                state="resolved",
                title=f"KV eviction storm on chat-secret-7 {HOSTILE}",
                started_at=START + 100 * 3600,
                detected_at=START + 100 * 3600 + 240,
                ended_at=START + 124 * 3600,
                classes=("chat",),
                pools=("chat-secret-7",),
            )
        )
        made.log_incident("one", START + 100 * 3600 + 600, "acknowledged", who="mara")
        yield made


def test_a_month_tells_what_was_kept_and_what_ate_the_budget(store: Store, config: Config) -> None:
    report = month_report(store, config, "2026-09", gpu_price=2.0, now=END + 86400)
    (chat,) = report.classes
    (o,) = chat.objectives
    assert (o.counts["good"], o.counts["bad"]) == (43_200 + 24 * 30, 24 * 30)
    assert o.point == "gateway"
    assert o.reportable
    assert o.days[0].day == "2026-09-05"
    assert {d.day for d in o.days} == {"2026-09-05", "2026-09-06"}
    assert (o.tenants[0].name, o.tenants[0].bad) == (HOSTILE, 720)
    assert o.eaten[0]["bad"] == 720
    assert o.eaten[0]["share"] == pytest.approx(720 / (0.01 * 44_640))
    (incident,) = chat.incidents
    assert (incident.detect, incident.acknowledge, incident.resolve) == (240, 600, 24 * 3600)
    assert chat.costs.output_tokens == 44_640 * 50
    assert chat.costs.gpu_hours is None, "not exported is not 0"


def test_a_closed_month_is_frozen_and_late_data_stand_beside_it(store: Store, config: Config) -> None:
    running = month_report(store, config, "2026-09", now=END - 3600)
    assert not running.closed
    assert running.classes[0].objectives[0].frozen_at is None
    first = month_report(store, config, "2026-09", now=END + 86400)
    frozen = first.classes[0].objectives[0]
    assert frozen.frozen_at == "2026-10-02T00:00:00Z"
    assert frozen.restated == ""
    store.add_requests(fold(log(range(500, 501), 10), fine_edges(config.request_thresholds)))
    looked = month_report(store, config, "2026-09", now=END + 2 * 86400, freeze=False)
    assert len(store.slo_months("=chat-ttft", "2026-09")) == 1, "looking changes nothing"
    assert looked.classes[0].objectives[0].frozen_at == frozen.frozen_at
    second = month_report(store, config, "2026-09", now=END + 2 * 86400).classes[0].objectives[0]
    assert second.frozen_at == frozen.frozen_at
    assert "late data" in second.restated
    assert frozen.attained in second.restated
    kept = store.slo_months("=chat-ttft", "2026-09")
    assert [m.seq for m in kept] == [0, 1]
    assert kept[0].data["counts"]["bad"] == 720
    assert store.slo_versions("=chat-ttft")[0].version == frozen.version


def test_the_files_hold_the_same_numbers_and_nothing_that_runs(
    store: Store, config: Config, tmp_path: Path
) -> None:
    report = month_report(store, config, "2026-09", gpu_price=2.0, now=END + 86400)
    files = write_report(report, tmp_path)
    assert [f.suffix for f in files] == [".html", ".csv", ".json"]
    page = to_html(report)
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "@media print" in page
    (row,) = csv.DictReader(io.StringIO(to_csv(report)))
    assert row["objective"] == "'=chat-ttft", "a spreadsheet must not run it"
    data = json.loads(to_json(report))
    one = data["classes"][0]["objectives"][0]
    assert float(row["attained_low"]) == one["attainment"][0]
    assert one["attained"] in page


def test_the_status_page_names_nothing_internal_and_does_not_flatter(store: Store, config: Config) -> None:
    page = status_html(store, config, days=90)
    assert "secret" not in page
    assert "eviction" not in page
    assert "script" not in page
    assert "Answers began later than promised" in page
    assert "98." in page, "attained, as it is"
    assert "missed" in page


def test_the_gate_closes_when_the_budget_is_spent(store: Store, config: Config) -> None:
    (line,) = lines(store, config)
    assert line["spent"]
    assert line["attainment"][1] < 0.99
    before = lines(store, config, START + 99 * 3600)[0]
    assert not before["spent"]


def test_a_proposal_is_what_99_of_100_requests_kept(store: Store) -> None:
    found = {p.slo.signal: p for p in propose(store, (), END, days=20)}
    ttft = found["ttft_seconds"]
    assert ttft.slo.threshold == pytest.approx(0.4, abs=0.11)
    assert ttft.n > 10_000
    assert "99 % of the last 20" in ttft.reason.replace("\u00a0", " ")
    assert rounded_up(3.2) == 4.0
    assert rounded_up(1.0) == 1.0
