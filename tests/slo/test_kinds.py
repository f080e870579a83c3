"""Kinds of objective on one small gateway log, counted by hand beside the product; OpenSLO in and out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from app.services.slos import slo_rows
from core.config import parse_config
from core.config_errors import ConfigErrors
from core.config_slo import SloConfig
from core.errors import ConfigError
from core.openslo import dump, entry, load
from core.records import RequestRecord
from core.requests import fine_edges, fold
from core.slo import Objective
from core.windows import period, start_of
from sql.objectives import Exclusion
from sql.store import Store

START = 1_790_000_400.0
END = START + 3600
SLOS = """
slos:
  - {name: ttft, class: chat, signal: ttft, threshold: 1s, objective_percent: 99}
  - {name: tpot, class: chat, signal: tpot, threshold: 50ms, objective_percent: 99}
  - {name: e2e, class: chat, signal: e2e, threshold: 10s, objective_percent: 99}
  - {name: up, class: chat, sli: availability, threshold: 10s, objective_percent: 99}
  - {name: all, class: chat, sli: goodput, thresholds: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective_percent: 95}
  - {name: long, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, prompt_above: 16000}
  - {name: acme, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, tenant: acme}
  - {name: minutes, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, budgeting: timeslices, slice_percent: 90}
  - {name: monthly, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, window: month}
"""


def records() -> list[RequestRecord]:
    """Ten attempts a minute for an hour; every fifth minute is slow."""
    out = []
    for i in range(600):
        minute, k = divmod(i, 10)
        ttft = 2.0 if minute % 5 == 0 and k < 3 else 0.2
        status, first = 200, ttft
        if k == 9:
            status = (503, 499, 500, 404)[minute % 4]
            first = None
        tokens = 1 if k == 8 else 101
        decode = 8.0 if k == 7 else 2.0
        out.append(
            RequestRecord(
                ts=START + 60 * minute + 5 * k,
                workload_class="chat",
                tenant="acme" if k < 5 else "globex",
                status=status,
                ttft_s=first,
                duration_s=(first or 12.0) + (decode if status == 200 and tokens > 1 else 0.0),
                prompt_tokens=20_000 if k < 2 else 500,
                output_tokens=tokens,
            )
        )
    return out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    config = parse_config(SLOS)
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('kinds') / 'k.db'}") as made:
        made.add_requests(
            fold(records(), fine_edges(config.request_thresholds), joints=config.request_joints)
        )
        yield made


def judge(name: str, r: RequestRecord) -> str:
    """One attempt, as the documentation of the kinds says it."""
    if r.status in (503, 500):
        return "bad"
    if r.status == 404:
        return "excluded"
    gap = None
    if r.ttft_s is not None and (r.output_tokens or 0) > 1:
        gap = (r.duration_s - r.ttft_s) / (r.output_tokens - 1)  # type: ignore[operator]
    if r.status == 499:  # all waited 12 s without a first token
        return "excluded" if name == "tpot" else "bad"
    assert r.ttft_s is not None
    assert r.duration_s is not None
    good = {
        "ttft": r.ttft_s <= 1.0,
        "tpot": gap is not None and gap <= 0.05,
        "e2e": r.duration_s <= 10.0,
        "up": True,
        "all": r.ttft_s <= 1.0 and (gap is None or gap <= 0.05) and r.duration_s <= 10.0,
    }
    if name == "tpot" and gap is None:
        return "excluded"
    return "good" if good.get(name, r.ttft_s <= 1.0) else "bad"


def counted(store: Store) -> dict[str, dict[str, int]]:
    rows = slo_rows(store, parse_config(SLOS), START, END)
    return {
        r.objective.name: {
            "good": r.attainment.tally.good,
            "bad": r.attainment.tally.bad,
            "excluded": r.attainment.tally.excluded,
        }
        for r in rows
    }


def test_every_kind_counts_what_a_count_of_the_attempts_gives(store: Store) -> None:
    found = counted(store)
    chosen = {
        "long": lambda r: r.prompt_tokens > 16_000,
        "acme": lambda r: r.tenant == "acme",
    }
    for name in ("ttft", "tpot", "e2e", "up", "all", "long", "acme"):
        expected = {"good": 0, "bad": 0, "excluded": 0}
        for r in records():
            if chosen.get(name, lambda r: True)(r):
                expected[judge(name, r)] += 1
        assert found[name] == expected, name
        assert expected["good"] > 50


def test_time_slices_count_minutes(store: Store) -> None:
    expected = {"good": 0, "bad": 0, "excluded": 0}
    for minute in range(60):
        mine = [judge("ttft", r) for r in records() if (r.ts - START) // 60 == minute]
        good, bad = mine.count("good"), mine.count("bad")
        expected["good" if good >= 0.9 * (good + bad) else "bad"] += 1
    assert counted(store)["minutes"] == expected
    assert min(expected["good"], expected["bad"]) > 5


def test_excluded_time_counts_neither_way_and_says_who_and_why(store: Store) -> None:
    before = counted(store)["ttft"]
    key = store.add_exclusion(
        Exclusion(START + 600, START + 1230, "mara", "load test", class_="chat", made_at=START)
    )
    try:
        after = counted(store)["ttft"]
        rows = slo_rows(store, parse_config(SLOS), START, END)
    finally:
        store.withdraw_exclusion(key, "mara", END)
    gone = [r for r in records() if START + 600 <= (r.ts // 60 * 60) < START + 1230]
    verdicts = [judge("ttft", r) for r in gone]
    assert after["good"] == before["good"] - verdicts.count("good")
    assert after["bad"] == before["bad"] - verdicts.count("bad")
    assert after["excluded"] == before["excluded"] + len(gone) - verdicts.count("excluded")
    assert rows[0].attainment.coverage == pytest.approx(1.0, abs=0.02), "what does not count is not missing"
    assert counted(store)["ttft"] == before


def test_goodput_of_a_log_folded_without_the_thresholds_is_bounded_not_guessed(tmp_path: Path) -> None:
    config = parse_config(SLOS)
    with Store.open(f"sqlite:///{tmp_path / 'old.db'}") as old:
        # One cell, as a busy minute is one: what happened together is not known any more.
        together = [replace(r, ts=START, tenant="", prompt_tokens=500) for r in records()]
        old.add_requests(fold(together, fine_edges(config.request_thresholds)))
        row = next(r for r in slo_rows(old, config, START, END) if r.objective.name == "all")
    verdicts = [judge("all", r) for r in records()]
    truth = verdicts.count("good") / (verdicts.count("good") + verdicts.count("bad"))
    assert row.attainment.low <= truth <= row.attainment.high
    assert row.attainment.low < row.attainment.high


def test_a_calendar_window_begins_with_its_month() -> None:
    o = Objective.from_config(parse_config(SLOS).slos[-1])
    first, last = period("month", END)
    assert start_of(o, END) == first
    assert start_of(o, last) == first, "the last moment of a month belongs to it"
    assert period("week", END)[1] - period("week", END)[0] == 7 * 86400


def test_openslo_out_and_in_gives_the_same_objectives() -> None:
    slos = parse_config(SLOS).slos
    back, skipped = load(dump(slos))
    assert skipped == []
    assert back == slos
    assert parse_config(yaml.safe_dump({"slos": [entry(s) for s in slos]})).slos == slos


FOREIGN = """
apiVersion: openslo/v1
kind: Service
metadata: {name: chat}
spec: {description: chat}
---
apiVersion: openslo/v1
kind: SLO
metadata:
  name: chat-latency
  annotations: {gustfront/class: chat, gustfront/signal: ttft}
spec:
  service: assistant
  indicator:
    metadata: {name: x}
    spec:
      thresholdMetric: {metricSource: {type: Prometheus, spec: {query: "histogram_quantile(0.99, x)"}}}
  timeWindow: [{duration: 4w, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{displayName: fast, op: lte, value: 1, target: 0.99}]
"""


def test_an_openslo_file_of_another_system_comes_in_by_its_annotations() -> None:
    (slo,), skipped = load(FOREIGN)
    assert (slo.class_, slo.signal, slo.threshold, slo.objective_percent) == (
        "chat",
        "ttft_seconds",
        1.0,
        99.0,
    )
    assert slo.window == 28 * 86400
    assert skipped == ["Service chat: Gustfront has its own"]


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        (("budgetingMethod: Occurrences", "budgetting: x"), "spec.budgetting", "not a field"),
        (("target: 0.99", "target: 0.99, goal: 1"), "objectives[0].goal", "not a field"),
        (("gustfront/signal: ttft", "gustfront/signl: ttft"), "gustfront/signl", "not a field"),
        (("openslo/v1\nkind: SLO", "openslo/v2\nkind: SLO"), "apiVersion", "is not openslo/v1"),
        (
            ("  annotations: {gustfront/class: chat, gustfront/signal: ttft}\n", ""),
            "indicator",
            "annotations",
        ),
        (("target: 0.99", "target: 1.5"), "objectives[0]", "less than 100"),
        (("duration: 4w, isRolling: true", "duration: 1Y, isRolling: false"), "duration", "no calendar"),
        (("Occurrences", "RatioTimeslices"), "budgetingMethod", "not counted"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_path(
    change: tuple[str, str], path: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(FOREIGN.replace(*change))
    assert path in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("slo", "path", "says"),
    [
        ("{name: x, class: chat, objective_percent: 99}", "slos[0]", "signal is missing"),
        ("{name: x, class: chat, sli: goodput, thresholds: {ttft: 1s}, objective_percent: 99}", "slos[0]", "two"),
        ("{name: x, class: chat, sli: goodput, thresholds: {ttft: 1s, queue: 1s}, objective_percent: 99}",
         "slos[0].thresholds", "not known of a single request"),
        ("{name: x, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, prompt_above: 5000}",
         "slos[0].prompt_above", "bands"),
        ("{name: x, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, tenant: a, point: engine}",
         "slos[0]", "tenants"),
        ("{name: x, class: chat, sli: availability, signal: ttft, objective_percent: 99}", "slos[0]", "has no signal"),
        ("{name: x, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, slice_percent: 90}",
         "slos[0]", "timeslices"),
    ],
)  # fmt: skip
def test_an_objective_that_cannot_be_counted_is_refused(slo: str, path: str, says: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_config(f"slos: [{slo}]")
    assert any(p.path == path and says in f"{p.problem} {p.fix}" for p in caught.value.problems), caught.value


def test_the_version_changes_with_the_meaning_and_not_with_the_words() -> None:
    one = parse_config(SLOS).slos[0]
    other = one.model_copy(update={"description": "said differently", "owner": "mara"})
    stricter = one.model_copy(update={"threshold": 0.9})
    assert Objective.from_config(one).version == Objective.from_config(other).version
    assert Objective.from_config(one).version != Objective.from_config(stricter).version
    assert isinstance(one, SloConfig)
