"""Leaks, tiers, adapters, transfers, prefill against decode, drafts and early warnings: what fires, and what only looks alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detectors.kv_transfer_slow import grade
from tests.detectors.fleet import START
from tests.detectors.mem_fleet import Say, Step, from_minute, only, said

PD = {"p": ("p-0", "p-1"), "d": ("d-0", "d-1")}


# ---------------------------------------------------------------- leaks


def leaking(m: float, name: str, per_minute: float = 0.02, since: float = 30) -> Step:
    """One replica loses two points of its memory a minute."""
    return Step(kv=min(1.0, 0.2 + per_minute * max(0.0, m - since)) if name == "a-1" else 0.2)


def test_memory_that_rises_at_the_same_load_is_a_leak_of_that_replica() -> None:
    r = said(leaking, 50)
    only(r, "kv_leak", ["a-1"])
    i = r.incidents[0].incident
    assert i.severity == "ticket", "nobody is late yet"
    assert i.detail["control"] == ["a-0", "a-2"]
    assert i.detail["full_in_minutes"] == pytest.approx((1 - 0.58) / 0.02, rel=0.25)


def test_a_leak_lasts_on_its_plateau_and_ends_with_the_restart() -> None:
    def say(m: float, name: str) -> Step:
        if m >= 65:
            return Step(kv=0.2, restart=name == "a-1" and m < 65.3)
        return replace(leaking(m, name, 0.05), kv=min(0.8, leaking(m, name, 0.05).kv))

    r = said(say, 80)
    only(r, "kv_leak", ["a-1"])
    ended = r.incidents[0].incident.ended_at
    assert ended is not None
    assert ended == pytest.approx(START + 65 * 60, abs=90)


@pytest.mark.parametrize(
    "load",
    [{"running": 30.0, "arrivals": 12.0}, {"prompt": 5000.0}, {"output": 600.0}],
    ids=["more requests", "longer prompts", "longer answers"],
)
def test_memory_that_rises_with_the_load_is_no_leak(load: dict[str, Any]) -> None:
    def say(m: float, name: str) -> Step:
        part = min(1.0, max(0.0, (m - 30) / 10))
        base = Step(kv=0.2)
        grown = {k: getattr(base, k) + part * (v - getattr(base, k)) for k, v in load.items()}
        return replace(base, kv=0.2 + 0.35 * part, **grown)

    assert "kv_leak" not in said(say, 48).kinds


def test_memory_that_steps_up_and_stays_is_no_leak() -> None:
    """B7: pinned blocks come as one step."""
    assert "kv_leak" not in said(from_minute(30, Step(kv=0.2), ["a-1"], kv=0.6), 46).kinds


# ---------------------------------------------------------------- drafts

DRAFTS = Step(acceptance=0.4, tpot=0.008)


def test_rejected_drafts_with_clean_texts_are_a_collapse() -> None:
    r = said(from_minute(30, DRAFTS, acceptance=0.05, tpot=0.016), sample=0.3)
    only(r, "spec_decode_collapse", ["a-0", "a-1", "a-2"])
    i = r.incidents[0].incident
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 300
    assert i.evidence[0].before == pytest.approx(0.4, abs=0.02)


def test_rejected_drafts_with_broken_texts_are_a_matter_of_texts_alone() -> None:
    r = said(from_minute(30, DRAFTS, acceptance=0.05, tpot=0.016, bad=0.05), sample=0.3)
    assert r.kinds == ["degraded_generations"]


def test_a_fall_by_a_third_is_not_a_collapse() -> None:
    assert said(from_minute(30, DRAFTS, acceptance=0.27, tpot=0.010)).kinds == []


def test_few_drafts_say_nothing() -> None:
    quiet = Step(arrivals=0.01, output=20, running=0.1, acceptance=0.4)
    assert said(from_minute(30, quiet, acceptance=0.0)).kinds == []


# ---------------------------------------------------------------- adapters

ADAPTERS = Step(adapters=6.0)


def test_late_first_tokens_at_the_same_demand_with_all_adapters_in_use_are_adapter_thrash() -> None:
    r = said(from_minute(30, ADAPTERS, prefill=0.5, itl=0.03, waiting=6, queue=1.5))
    only(r, "lora_thrash", ["a-0", "a-1", "a-2"])
    assert "inferred" in r.incidents[0].incident.cause


@pytest.mark.parametrize(
    "otherwise",
    [
        {"adapters": None},
        {"prefill": 0.24, "itl": 0.04},
        {"arrivals": 8.0, "prefill": 0.5, "waiting": 50.0, "queue": 8.0},
        {"hit": 0.2, "prefill": 0.5},
    ],
    ids=["no adapters", "a slow engine", "demand", "lost hits"],
)
def test_what_slows_first_tokens_otherwise_is_no_adapter_thrash(otherwise: dict[str, Any]) -> None:
    more = {"prefill": 0.5, "itl": 0.03, "waiting": 6.0, "queue": 1.5, **otherwise}
    base = replace(ADAPTERS, adapters=more["adapters"]) if "adapters" in more else ADAPTERS
    assert "lora_thrash" not in said(from_minute(30, base, **more)).kinds


# ---------------------------------------------------------------- second tiers

TIER = Step(tier_queries=4000.0, tier_hits=2500.0, tier_loaded=1e8, tier_stored=1e7)


def test_hits_that_stay_while_first_tokens_take_longer_are_a_slow_tier() -> None:
    r = said(from_minute(30, TIER, prefill=1.0, itl=0.03, running=18))
    only(r, "offload_thrash", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.detail["which"] == "slow"


def test_without_any_sign_of_a_tier_none_is_blamed() -> None:
    assert "offload_thrash" not in said(from_minute(30, Step(), prefill=1.0, itl=0.03, running=18)).kinds


def test_a_tier_that_is_asked_and_never_answers_is_inert() -> None:
    r = said(lambda m, name: replace(TIER, tier_hits=0.0, tier_loaded=0.0), 36)
    only(r, "offload_thrash", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.detail["which"] == "inert"
    assert r.incidents[0].incident.severity == "ticket"


def test_a_tier_that_pays_is_left_alone() -> None:
    assert said(lambda m, name: TIER, 36).kinds == []


# ---------------------------------------------------------------- prefill and decode

SENDER = Step(output=1.0, running=0.5, kv=0.02, transfer_s=0.1, hit=0.5)
RECEIVER = Step(prompt=0.0, hit=0.0, running=5.0, kv=0.3, prefill=0.1, transfer_s=0.1)


def pd(
    minute: float = 30, sender: dict[str, Any] | None = None, receiver: dict[str, Any] | None = None
) -> Say:
    """Two replicas compute prompts, two decode."""

    def say(m: float, name: str) -> Step:
        base, changed = (SENDER, sender) if name.startswith("p") else (RECEIVER, receiver)
        return replace(base, **(changed or {})) if m >= minute else base

    return say


def test_a_gigabyte_that_takes_longer_at_both_ends_is_a_slow_transfer() -> None:
    r = said(
        pd(sender={"transfer_s": 0.6}, receiver={"transfer_s": 0.8, "prefill": 0.8, "kv": 0.5}), pools=PD
    )
    only(r, "kv_transfer_slow", ["d-0", "d-1"])
    assert r.incidents[0].incident.detail["grade"] == "pathological"


def test_more_bytes_at_the_same_price_are_no_slow_transfer() -> None:
    longer = {"transfer_s": 0.3, "transfer_bytes": 3e9}
    assert (
        "kv_transfer_slow" not in said(pd(sender=longer, receiver={**longer, "prefill": 0.3}), pools=PD).kinds
    )


def test_receivers_without_room_are_out_of_balance_and_not_a_slow_link() -> None:
    full = {"transfer_s": 20.0, "prefill": 20.0, "kv": 0.96, "running": 17.0, "output": 900.0}
    r = said(pd(receiver=full), pools=PD)
    only(r, "prefill_decode_imbalance", ["d-0", "d-1"])
    assert "Answers got longer" in r.incidents[0].incident.cause


def test_a_queue_before_prefill_is_not_out_of_balance() -> None:
    """F4: prefill is short, decode idles."""
    r = said(pd(sender={"waiting": 60.0, "queue": 15.0, "prefill": 0.5, "arrivals": 6.0}), pools=PD)
    assert not {"prefill_decode_imbalance", "kv_transfer_slow", "kv_eviction_storm"} & set(r.kinds)


def test_transfers_that_fail_are_told_from_slow_ones() -> None:
    r = said(pd(receiver={"transfer_failed": 0.5}), pools=PD)
    only(r, "kv_transfer_slow", ["d-0", "d-1"])
    assert "fail" in r.incidents[0].incident.title


@pytest.mark.parametrize(
    ("overhead", "words"), [(0.009, "good"), (0.05, "acceptable"), (0.2, "raised"), (0.21, "pathological")]
)
def test_overhead_is_graded_as_published(overhead: float, words: str) -> None:
    assert grade(overhead) == words


# ---------------------------------------------------------------- storms that are seen coming


def test_blocks_that_are_evicted_before_they_are_used_again_announce_a_storm() -> None:
    def say(m: float, name: str) -> Step:
        part = min(1.0, max(0.0, (m - 30) / 8))
        return Step(
            arrivals=4 + 4 * part,
            running=10 + 12 * part,
            kv=0.3 + 0.4 * part,
            idle_evict=300 - 240 * part,
            reuse_gap=60.0,
        )

    r = said(say, 45)
    assert r.kinds == ["kv_eviction_storm"]
    i = r.incidents[0].incident
    assert i.state == "announced"
    assert i.severity == "ticket"
    assert i.detail["room"]["source"] == "blocks"


def test_a_fleet_without_sessions_says_what_an_early_warning_would_need() -> None:
    def say(m: float, name: str) -> Step:
        if m >= 32:
            return Step(hit=0.05, prefill=1.6, running=40, waiting=6, queue=3.0, kv=0.9, arrivals=2.0)
        return Step(running=25, kv=0.75, arrivals=5.0) if m >= 30 else Step()

    r = said(say)
    only(r, "kv_eviction_storm", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.detail["early_warning"].startswith("No early warning without")


def test_prompts_that_grew_before_the_hits_went_are_pressure() -> None:
    """Contexts that outgrow the cache are a storm, although no more requests came."""

    def say(m: float, name: str) -> Step:
        if m >= 36:
            return Step(
                prompt=4400, hit=0.3, prefill=1.6, running=22, waiting=3, queue=1.0, kv=0.7, finished=3.0
            )
        return Step(prompt=2000 + 400 * (m - 30), kv=0.3 + 0.03 * (m - 30)) if m >= 30 else Step()

    only(said(say, 44), "kv_eviction_storm", ["a-0", "a-1", "a-2"])


# ---------------------------------------------------------------- a cache that never hits


def test_a_cache_that_never_hit_traffic_that_comes_back_is_a_ticket() -> None:
    r = said(lambda m, name: Step(hit=0.0), 36, sample=0.3, turns=4)
    only(r, "prefix_cache_loss", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.detail["which"] == "never"


def test_a_cache_that_never_hit_traffic_of_single_questions_is_fine() -> None:
    assert said(lambda m, name: Step(hit=0.0), 36, sample=0.3, turns=1).kinds == []
