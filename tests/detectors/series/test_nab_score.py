"""The benchmark's score: its rules on small cases, two published detectors, and the reference re-computation."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from bench import nab_score as score
from bench.nab import PUBLISHED, own, random_scores
from bench.nab_data import Series, folder, load
from bench.nab_peers import relative_entropy, windowed_gaussian
from detectors.series.scorer import ALARM


def case(n: int = 200, windows: tuple[tuple[int, int], ...] = ((100, 119),)) -> Series:
    return Series("s", np.arange(n) * 3600.0, np.zeros(n), windows)


def raised_at(*points: int, n: int = 200) -> dict[str, np.ndarray]:
    out = np.zeros(n)
    out[list(points)] = 1.0
    return {"s": out}


def test_nothing_raised_is_0_and_the_first_point_of_every_window_is_100() -> None:
    s = [case()]
    assert score.at(raised_at(), s, 0.5) == 0.0
    # The first point stands at -(19 + 1) / 20 = -1 of the window, which is worth exactly 1.
    assert score.at(raised_at(100), s, 0.5) == pytest.approx(100.0)


def test_late_hits_earn_less_only_the_best_counts_and_false_points_cost_by_distance_and_profile() -> None:
    s = [case()]
    late = (2 / (1 + np.exp(-5 / 20)) - 1) / (2 / (1 + np.exp(-5.0)) - 1)
    assert score.at(raised_at(119), s, 0.5) == pytest.approx(50 * (1 + late))
    assert score.at(raised_at(100, 110, 119), s, 0.5) == pytest.approx(100.0)
    assert score.at(raised_at(60), s, 0.5) == pytest.approx(-50 * 0.11)
    assert score.at(raised_at(60), s, 0.5, "low-FP") == pytest.approx(-50 * 0.22)
    just_behind = 2 / (1 + np.exp(5 * 1 / 19)) - 1
    assert score.at(raised_at(120), s, 0.5) == pytest.approx(50 * 0.11 * just_behind)
    assert score.at(raised_at(190), s, 0.5) == pytest.approx(-50 * 0.11)
    assert score.at(raised_at(100), s, 0.5, "low-FN") == pytest.approx(100.0)


def test_the_learning_part_is_not_scored() -> None:
    assert score.learning(200) == 30
    assert score.learning(100_000) == 750
    s = [case()]
    assert score.at(raised_at(29), s, 0.5) == 0.0 > score.at(raised_at(30), s, 0.5)


def test_episodes_are_points_within_an_hour_and_the_budget_sets_the_threshold() -> None:
    s = [Series("s", np.arange(2000) * 300.0, np.zeros(2000), ((1000, 1099),))]
    values = np.zeros(2000)
    values[[500, 505, 520, 1010]] = [3.0, 3.0, 2.0, 2.5]
    events = score.raised({"s": values}, s, 2.0)
    assert events.recall == 1.0
    assert events.delay == pytest.approx(0.1)
    assert events.false_per_day * events.days == pytest.approx(2)
    assert score.threshold_for({"s": values}, s, 1.0 / events.days) == 2.5


@pytest.fixture(scope="module")
def benchmark() -> tuple[Path, list[Series]]:
    where = folder()
    if where is None:
        pytest.skip("the benchmark's series are not beside the checkout (shared/nab)")
    return where, load(where)


@pytest.mark.shared
def test_the_published_scores_of_two_detectors_come_out(benchmark: tuple[Path, list[Series]]) -> None:
    _, series = benchmark
    for name, detector in (("windowed Gaussian", windowed_gaussian), ("relative entropy", relative_entropy)):
        scores = {s.name: detector(s.value) for s in series}
        assert round(score.best(scores, series)[0], 1) == PUBLISHED[name]


@pytest.mark.shared
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_the_score_agrees_with_the_reference_to_two_decimals_in_every_profile(
    benchmark: tuple[Path, list[Series]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import tarfile

    import zstandard

    where, series = benchmark
    with (where / "data.tar.zst").open("rb") as packed:
        raw = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed).read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "combined_windows.json").write_bytes((where / "combined_windows.json").read_bytes())
    monkeypatch.setenv("NAB", str(tmp_path))
    spec = importlib.util.spec_from_file_location("nabscore", where / "nabscore.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    names = {"standard": "standard", "low-FP": "reward_low_FP_rate", "low-FN": "reward_low_FN_rate"}
    for scores in (own(series), random_scores(series, 1), random_scores(series, 2)):
        for profile, theirs in names.items():
            expected = reference.sweep(scores, [s.name for s in series], theirs)[0]
            assert score.best(scores, series, profile)[0] == pytest.approx(expected, abs=0.005)


@pytest.mark.shared
def test_the_series_detector_reaches_60_at_its_own_threshold_and_beats_a_random_score_by_far(
    benchmark: tuple[Path, list[Series]],
) -> None:
    _, series = benchmark
    scores = own(series)
    assert score.at(scores, series, ALARM) >= 60.0
    assert score.at(scores, series, ALARM, "low-FP") >= 50.0
    random = score.best(random_scores(series, 1), series)[0]
    assert score.best(scores, series)[0] > random + 40
