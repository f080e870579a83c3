"""Public reports of degraded generations: each input passes through the printed numbers, the verdict is the one it deserves.

What a report does not print is said in the test: mostly the ordinary traffic beside it, of which a deployment always has some.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from core.records import OutputRecord
from core.text.score import score_text
from core.text.toolcalls import call_rules
from detectors.quality.analysis import Analysis, analyse
from detectors.quality.cells import Cells
from detectors.quality.compare import difference
from detectors.quality.decision import Setting, decide
from detectors.quality.load import LoadSeries
from detectors.quality.rates import exact
from detectors.quality.verdict import LoadVerdict
from sql.store import Store

T0 = 1_790_000_400.0
HOUR = 3600.0
_ids = count()


def outputs(
    n: int,
    bad: int,
    start: float,
    seconds: float,
    *,
    replica: str = "a-0",
    cache: str = "",
    release: str = "",
) -> list[OutputRecord]:
    """``n`` outputs spread evenly, ``bad`` of them (spread as well) degraded; each a session of its own, 4 s long."""
    where = {round((i + 0.5) * n / bad) for i in range(bad)} if bad else set()
    out = []
    for i in range(n):
        ts = T0 + start + (i + 0.5) * seconds / n
        out.append(
            OutputRecord(
                f"o{next(_ids)}",
                ts,
                ts - 4.0,
                "chat",
                pool="a",
                replica=replica,
                session=f"s{next(_ids)}",
                prompt_tokens=2000,
                cached_tokens=1000 if cache else 0,
                cache_source=cache,
                release=release,
                e2e_s=4.0,
                verdict="hard" if i in where or bad == n else "clean",
                rules={"script_soup": 1.0} if i in where or bad == n else {},
            )
        )
    return out


def judged(tmp_path: Path, records: Iterable[OutputRecord], start: float, end: float) -> Analysis:
    """The analysis of [T0 + start, T0 + end) of a store that holds these outputs."""
    with Store.open(f"sqlite:///{tmp_path / 'case.db'}") as store:
        store.add_outputs(records)
        return analyse(store, T0 + start, T0 + end)


def at_load(steps: Iterable[tuple[float, int, int]], minutes: float = 10.0) -> LoadVerdict:
    """The load verdict of one replica over successive spans of (concurrency, outputs, bad), minute by minute."""
    rows = list(steps)
    parts = int(minutes)
    load = np.repeat(np.asarray([float(c) for c, _, _ in rows]), parts)[None]
    n, k = (np.repeat(np.asarray([r[i] / parts for r in rows], np.float64), parts) for i in (1, 2))
    zero = np.zeros(len(n), np.intp)
    t = np.asarray(T0 + (np.arange(len(n)) + 0.5) * 60, np.float64)
    blank = np.zeros(len(n))
    cells = Cells(k, n, t, zero, zero, zero, load[0] / load.mean(), blank, blank)
    return decide(cells, Setting(LoadSeries(T0, load / load.mean(), 60.0), np.zeros(1, np.intp)))


# ---------------------------------------------------------------- cache path and transfer


def test_ho29_a_varying_request_of_each_run_garbled_on_the_transfer_path(tmp_path: Path) -> None:
    """~50 requests in batches of 5, every run one varying request whose KV differs at the destination only.

    Not printed: ten runs, and as many requests that needed no transfer.
    """
    moved = [x for run in range(10) for x in outputs(50, 1, run * 300, 200, cache="remote")]
    local = [x for run in range(10) for x in outputs(200, 0, run * 300, 200)]
    a = judged(tmp_path, moved + local, 0, HOUR)
    assert a.verdict.code == "cache"
    assert [s.level for s in a.strata.carriers()] == ["host or remote cache"]
    assert a.load.verdict is not True


def test_ho30_five_of_five_wrong_on_host_replay_and_right_after_the_fix(tmp_path: Path) -> None:
    """Not printed: 300 ordinary answers beside the ten of the report."""
    records = outputs(5, 5, 0, 600, cache="cpu") + outputs(5, 0, 600, 600, cache="gpu")
    a = judged(tmp_path, records + outputs(300, 0, 0, 1200), 0, 1200)
    assert a.verdict.code == "cache"
    # The ten alone are what Fisher says of them, no more.
    assert difference(5, 5, 0, 5).p == pytest.approx(1 / 126, rel=0.01)


def test_ho31_fluent_prose_instead_of_a_call_is_seen_by_the_call_not_by_the_prose(tmp_path: Path) -> None:
    """finish_reason stop, no call, prose that invents the result: no text rule may fire on it; filler loops do."""
    prose = (
        "I read the file. It contains a table of regions with their quotas, and the last line shows a total of 4,096, "
        "so the limit is not reached yet and nothing has to be changed."
    )
    assert score_text(prose).verdict == "clean"
    filler = "Let me check the result of the command and continue with the next step. " * 12
    assert score_text(filler).verdict == "hard"
    # Where outcomes or a schema make the dropped call a degraded output, the host tier is named (as in HO-30).
    a = judged(tmp_path, outputs(20, 6, 0, 1200, cache="cpu") + outputs(400, 0, 0, 1200), 0, 1200)
    assert a.verdict.code == "cache"


def test_ho32_host_hits_wrong_device_hits_right(tmp_path: Path) -> None:
    """20 of 20 wrong on host hits, 10 of 10 right on device hits; the "fix" mostly misses: 4 of 6 cached nothing."""
    a = judged(
        tmp_path, outputs(20, 20, 0, 1200, cache="cpu") + outputs(10, 0, 0, 1200, cache="gpu"), 0, 1200
    )
    assert a.verdict.code == "cache"
    assert exact(0, 2).high > 0.8, "two host hits without a fault show nothing"
    assert not difference(0, 2, 9, 10).p < 0.001


# ---------------------------------------------------------------- floods


def test_ho33_only_exclamation_marks_on_one_replica_or_on_all(tmp_path: Path) -> None:
    flood = score_text("!" * 400)
    assert flood.verdict == "hard"
    assert "char_run" in flood.rules
    one = outputs(400, 40, 0, HOUR, replica="a-0") + outputs(400, 0, 0, HOUR, replica="a-1")
    a = judged(tmp_path / ".", one, 0, HOUR)
    assert (a.verdict.code, a.strata.carriers()[0].level) == ("replica", "a-0")


def test_ho33_on_all_replicas_no_replica_is_named(tmp_path: Path) -> None:
    every = [x for r in ("a-0", "a-1", "a-2") for x in outputs(400, 40, 0, HOUR, replica=r)]
    a = judged(tmp_path, every, 0, HOUR)
    assert a.verdict.code in ("open", "no_load")
    assert not a.strata.carriers()


# ---------------------------------------------------------------- load


def test_ho34_good_up_to_twelve_parallel_and_bad_above_is_load() -> None:
    """1, 2, 4, 8, 12 parallel are good; 16, the next step, is not. Not printed: 200 answers a step, 2 % bad, six rounds."""
    rounds = [(float(c), 200, 4 if c > 12 else 0) for _ in range(6) for c in (1, 2, 4, 8, 12, 16)]
    v = at_load(rounds)
    assert v.verdict is True
    assert v.shape.startswith("step")
    one = at_load(rounds[:6])
    assert one.verdict is None, "one round meets one high load: cannot tell yet"


def test_ho36_empty_replies_at_a_hundred_parallel_are_load() -> None:
    """20-50 % of replies are empty at 100 concurrent, none when idle. Not printed: six spells of load, 60 replies each.

    The trap, mean latency that improves, has no part in it: only rates at load do.
    """
    spells = [
        s
        for share in (0.2, 0.5, 0.3, 0.4, 0.25, 0.35)
        for s in ((2.0, 60, 0), (2.0, 60, 0), (100.0, 60, int(60 * share)))
    ]
    assert at_load(spells).verdict is True


def test_ho37_empty_replies_on_an_idle_server_are_not_load() -> None:
    """One captured request twenty times in each of some arms: 53 empties of 265, 15-25 % on an idle machine."""
    arms = [(1.0 + 0.01 * (i % 3), 20, 4) for i in range(12)] + [(1.0, 25, 5)]
    v = at_load(arms)
    assert v.verdict is not True
    assert v.why.startswith("the load hardly changed") or v.verdict is False
    r = exact(53, 265)
    assert (r.low, r.high) == pytest.approx((0.153, 0.253), abs=0.01)


# ---------------------------------------------------------------- releases, calls, comparisons


def test_ho35_accuracy_gone_with_a_build_is_the_release(tmp_path: Path) -> None:
    """GSM8K 0.005 after a change of build. Not printed: 200 questions each, 30 % wrong before."""
    before = outputs(200, 60, 0, HOUR, release="r1")
    after = outputs(200, 199, HOUR, HOUR, release="r2")
    a = judged(tmp_path, before + after, 0, 2 * HOUR)
    worst = a.strata.of("release")[0]
    assert (worst.level, worst.named) == ("r2", True)
    assert a.load.verdict is not True


@pytest.mark.parametrize(
    "call",
    [
        {"name": "bash", "arguments": "{}"},
        {"name": "bash", "arguments": '{"command=ls": ""}'},
        {"name": 'bash{"command": "ls"}', "arguments": "{}"},
    ],
)
def test_ho38_each_printed_call_is_malformed(call: dict[str, str]) -> None:
    tools = {
        "bash": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    }
    assert call_rules([call], tools)
    assert not call_rules([{"name": "bash", "arguments": '{"command": "ls"}'}], tools)


def test_ho39_nine_of_ten_with_and_without_drafts_shows_nothing() -> None:
    d = difference(9, 10, 9, 10)
    assert (d.separable, d.p) == (False, 1.0)
    assert d.high - d.low > 0.5, "ten of each could hide a difference of a quarter"


def test_ho40_four_stray_characters_in_six_days_are_the_models_trait(tmp_path: Path) -> None:
    """4 events, 2 sessions, 6 days at ~16 h a day. Not printed: 200 answers a day, and the same in the days before."""
    days = [x for d in range(12) for x in outputs(200, int(d in (1, 4, 7, 8, 10, 11)), d * 86400, 16 * HOUR)]
    a = judged(tmp_path, days, 6 * 86400, 12 * 86400)
    assert a.rate.k == 4
    assert a.verdict.code == "baseline"


# ---------------------------------------------------------------- vendors

K2VV = ((1274, 1274), (1276, 1280), (1187, 1225), (1007, 1325), (928, 1269), (549, 636))


def test_ho42_vendors_are_ranked_by_interval_and_the_first_two_cannot_be_told_apart() -> None:
    best, second = K2VV[0], K2VV[1]
    tie = difference(*second, *best)
    assert tie.low > -0.01, "less than one point apart in any case"
    assert tie.p > 0.05
    for k, n in K2VV[2:]:
        assert difference(k, n, *best).separable
    shares = sorted(K2VV, key=lambda v: -exact(*v).low)
    assert shares[:2] == [best, second]
    # F1 from 0.82 to 0.84 on the official API itself: only below 0.80 is another model.
    assert math.isclose(0.84 - 0.827, 0.013, abs_tol=1e-9)
