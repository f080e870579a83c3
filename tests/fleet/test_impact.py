"""First and last time more than 5 % missed, over one-minute windows."""

from __future__ import annotations

from fleet.impact import Impact

T = 1_790_064_000.0


def filled(misses: dict[int, int], n: int = 40, slots: int = 400) -> Impact:
    """``n`` requests a slot of 15 s; ``misses`` of them by slot."""
    impact = Impact()
    for slot in range(slots):
        for i in range(n):
            impact.record(T + 15 * slot + 1, "p", "chat", f"p-{i % 2}", i < misses.get(slot, 0))
    return impact


def test_an_impact_lasts_from_the_first_bad_minute_to_the_last() -> None:
    impact = filled(dict.fromkeys(range(100, 140), 20))
    # 20 of 160 in the minute that ends with slot 100: it begins with slot 97.
    assert impact.span(T, T + 2000, T + 6000, "p", ("chat",)) == (T + 97 * 15, T + 143 * 15)


def test_it_does_not_begin_before_its_fault() -> None:
    impact = filled(dict.fromkeys(range(100, 140), 20))
    assert impact.span(T + 1515, T + 2000, T + 6000, "p", None) == (T + 1515, T + 143 * 15)


def test_a_few_misses_are_no_impact() -> None:
    assert filled(dict.fromkeys(range(100, 140), 2)).span(T, T + 2000, T + 6000, "p", None) is None
    assert filled({100: 2}, n=4).span(T, T + 2000, T + 6000, "p", None) is None


def test_trouble_long_after_the_fault_is_another_story() -> None:
    impact = filled({**dict.fromkeys(range(100, 120), 20), **dict.fromkeys(range(300, 320), 20)})
    assert impact.span(T, T + 1800, T + 6000, "p", None) == (T + 97 * 15, T + 123 * 15)


def test_a_replica_can_be_looked_at_alone() -> None:
    impact = Impact()
    for i in range(200):
        impact.record(T + i, "p", "chat", f"p-{i % 2}", i % 2 == 1)
    assert impact.windows(T, T + 200, "p", None, "p-1")
    assert not impact.windows(T, T + 200, "p", None, "p-0")


def test_old_slots_are_forgotten() -> None:
    impact = filled(dict.fromkeys(range(100, 140), 20))
    impact.forget(T + 150 * 15)
    assert impact.span(T, T + 2000, T + 6000, "p", None) is None
