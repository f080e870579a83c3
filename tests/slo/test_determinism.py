"""The objective on canaries: are their answers the same as the reference?"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.services.gateway import Where
from app.services.month_report import definition
from app.services.rates import exact_interval
from app.services.slo_sampled import sampled
from core.config import parse_config
from core.config_errors import ConfigErrors
from core.objective import Objective
from core.openslo import dump, load
from core.records import Outcome
from sql.objectives import Exclusion
from sql.store import Store

HOUR, DAY = 3600.0, 86400.0
END = 1_790_000_400.0
START = END - 7 * DAY
TEXT = "slos:\n  - {name: same, class: canary, sli: determinism, objective_percent: 99}\n"


def run(at: float, same: int, other: int) -> list[Outcome]:
    """One run of the canaries."""
    kinds = [True] * same + [False] * other
    return [Outcome(f"{at}-{i}", at + i, "canary_same", ok) for i, ok in enumerate(kinds)]


@pytest.fixture
def objective() -> Objective:
    return Objective.from_config(parse_config(TEXT).slos[0])


def test_answers_that_differ_are_bad_and_each_run_covers_the_day_after_it(
    tmp_path: Path, objective: Objective
) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'g.db'}") as store:
        store.add_outcomes(
            [
                *run(START - 12 * HOUR, 5, 5),  # before the window: counts nothing, covers half a day of it
                *run(START + 2 * DAY, 40, 0),
                *run(START + 2.5 * DAY, 57, 3),  # overlaps: a day and a half together
                Outcome("right", START + 3 * DAY, "canary_correct", False),
            ]
        )
        made, minutes, covered = sampled(store, objective, START, END, Where())
        assert (made.tally.good, made.tally.bad, made.tally.excluded) == (97, 3, 0)
        low, high = exact_interval(3, 100)
        assert (made.low, made.high) == pytest.approx((1 - high, 1 - low))
        assert covered == pytest.approx((12 + 36) * 60, abs=2)
        assert not made.reportable  # two days of seven
        assert minutes.window(START + 2.4 * DAY, END).bad == 3
        out = Exclusion(START + 2.4 * DAY, START + 2.6 * DAY, "ann", "a new model", id="x")
        kept, _, _ = sampled(store, objective, START, END, Where(exclusions=(out,)))
        assert (kept.tally.good, kept.tally.bad, kept.tally.excluded) == (40, 0, 60)


def test_without_canaries_there_is_nothing_to_say(tmp_path: Path, objective: Objective) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'g.db'}") as store:
        made, _, covered = sampled(store, objective, START, END, Where())
        assert made.state == "no_traffic"
        assert covered == 0


def test_it_is_said_in_a_sentence_and_goes_through_openslo(objective: Objective) -> None:
    assert "a canary's answer the same as its reference" in definition(objective)
    config = parse_config(TEXT)
    back, skipped = load(dump(config.slos), "x")
    assert (back, skipped) == (list(config.slos), [])


@pytest.mark.parametrize("more", ["pool: a", "model: m", "tenant: t"])
def test_canaries_cannot_be_narrowed(more: str) -> None:
    with pytest.raises(ConfigErrors, match="canaries are counted all together"):
        parse_config(TEXT.replace("}", f", {more}}}"))
