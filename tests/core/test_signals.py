"""The canonical signals: ids, kinds, aliases, and that the written reference is the one made from the data."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from collectors.reference import DOCS, engines_page, signals_page
from core.errors import ConfigError
from core.signals import ALIASES, SIGNALS, resolve


def test_every_id_of_the_facts_is_a_canonical_signal(shared: Path) -> None:
    facts = yaml.safe_load((shared / "engines.yaml").read_text())["signals"]
    missing = [s["id"] for s in facts if s["id"] not in SIGNALS or SIGNALS[s["id"]].of]
    assert missing == []


def test_kinds_agree_with_the_facts_except_where_the_facts_mix_or_the_values_are_not_whole(
    shared: Path,
) -> None:
    facts = yaml.safe_load((shared / "engines.yaml").read_text())["signals"]
    other = {s["id"]: SIGNALS[s["id"]].kind for s in facts if s["type"] != SIGNALS[s["id"]].kind}
    assert other == {
        "host_kv_offload": "counter",
        "gpu_throttle": "gauge",
        "gpu_interconnect_bytes": "gauge",
        "router_flow_control": "gauge",
        "spend_total": "sum",
    }


def test_each_histogram_has_its_mean_only_forms() -> None:
    for s in list(SIGNALS.values()):
        if s.kind == "histogram":
            assert SIGNALS[f"{s.id}_sum"].kind == "sum"
            assert SIGNALS[f"{s.id}_count"].kind == "counter"
            assert SIGNALS[f"{s.id}_mean"].kind == "gauge"
            assert SIGNALS[f"{s.id}_sum"].base == s.base


def test_a_derived_form_names_a_canonical_signal() -> None:
    for s in SIGNALS.values():
        assert not SIGNALS[s.base].of, s.id


def test_every_signal_says_unit_and_meaning() -> None:
    for s in SIGNALS.values():
        assert s.unit
        assert s.meaning.endswith("."), s.id


def test_short_names_resolve_to_signals() -> None:
    assert resolve("ttft").id == "ttft_seconds"
    assert resolve("itl").id == "inter_token_latency_seconds"
    assert resolve("e2e").id == "request_latency_seconds"
    assert resolve("queue").id == "queue_time_seconds"
    assert all(resolve(short).id == id for short, id in ALIASES.items())
    assert resolve("kv_cache_usage_ratio").across == "max"


def test_an_unknown_signal_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("ttft_second")
    assert "ttft_seconds" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        resolve("qqqqqq")
    assert "docs/signals.md" in str(caught.value)


def test_the_written_reference_is_current() -> None:
    assert (DOCS / "signals.md").read_text() == signals_page()
    assert (DOCS / "engines.md").read_text() == engines_page()
