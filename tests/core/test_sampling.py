"""Samples: unbiased by construction, the same for everybody; and what is struck out of texts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.redact import Redaction
from core.sampling import Reservoir, fraction


def test_the_share_depends_on_the_id_alone_and_is_uniform() -> None:
    values = [fraction(f"req-{i}") for i in range(20_000)]
    assert values[7] == fraction("req-7")
    for share in (0.01, 0.1, 0.5):
        assert sum(v < share for v in values) / len(values) == pytest.approx(share, abs=0.012)


@given(st.lists(st.text(max_size=8), unique=True, max_size=60), st.integers(0, 10), st.randoms())
def test_a_reservoir_keeps_the_same_whatever_the_order(ids: list[str], size: int, rng: random.Random) -> None:
    def kept(order: list[str]) -> tuple[set[str], set[str], float]:
        reservoir: Reservoir[str] = Reservoir(size)
        for i in order:
            reservoir.add(i, i, suspicious=len(i) > 5)
        found = list(reservoir.items())
        chosen = {k.item for k in found if k.random}
        besides = {k.item for k in found if not k.random}
        assert list(reservoir.items()) == []
        return chosen, besides, sum(k.weight for k in found if k.random)

    shuffled = list(ids)
    rng.shuffle(shuffled)
    chosen, besides, weights = kept(ids)
    assert (chosen, besides) == kept(shuffled)[:2]
    assert len(chosen) == min(size, len(ids))
    assert chosen == set(sorted(ids, key=fraction)[:size])
    assert besides == {i for i in ids if len(i) > 5} - chosen
    if chosen:
        assert weights == pytest.approx(len(ids))


def test_rates_from_a_reservoir_are_unbiased_however_many_suspicious_ones_it_keeps() -> None:
    rates = []
    for run in range(200):
        reservoir: Reservoir[bool] = Reservoir(50)
        for i in range(500):
            bad = i % 10 == 0
            reservoir.add(f"{run}-{i}", bad, suspicious=bad)
        kept = list(reservoir.items())
        assert sum(k.item for k in kept) == 50  # every suspicious one is there
        rates.append(sum(k.item * k.weight for k in kept if k.random) / 500)
    assert sum(rates) / len(rates) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("write to ada.l+x@mail.example.co.uk today", "ada.l"),
        ("use sk-abcdEFGH1234567890abcd", "sk-abcd"),
        ("token ghp_0123456789abcdefghij0123", "ghp_"),
        ("Authorization: Bearer abcdefghijklmnop0123456789", "abcdefghijkl"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl", "eyJ"),
        ("card 4111 1111 1111 1111 please", "4111"),
        ("DE89 3704 0044 0532 0130 00", "3704"),
        ("call +49 (30) 901820 now", "901820"),
        ("postgres://admin:hunter22@db/x", "hunter22"),
        ('{"password": "correct horse"}', "correct"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow, cut off", "MIIEow"),
        ("customer KD-12345678", "12345678"),
    ],
)
def test_secrets_and_addresses_are_struck_out(text: str, gone: str) -> None:
    shown = Redaction([r"\bKD-\d{8}\b"])(text)
    assert gone not in shown
    assert "[" in shown


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 42, as in version 3.11.7 of 2026-09-21T10:00:00Z.",
        "def password_strength(word): return len(word)",
        "1234567890123456 is no card; 0000 0000 0000 0000 neither.",
        "Order 20260921000123 arrived at 10:15.",
        "https://example.org/a?b=c#d and user@",
        "risk-averse pk-2 task_force",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redaction()(text) == text


@given(st.text(max_size=500))
def test_any_text_can_be_redacted(text: str) -> None:
    Redaction()(text)
