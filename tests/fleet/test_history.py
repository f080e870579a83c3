"""A simulated fleet as history: as files that Prometheus reads, and as a past drawn from what was simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import EnvironmentProblem
from fleet.director import STORY, Director, Scene, scripted
from fleet.faces.page import Page
from fleet.faces.targets import Exposed, FleetFaces, Sample, visible
from fleet.history import play, write_scenario
from fleet.history_past import BLOCK_TICKS, Past, Recording
from fleet.model import FaultSpec, FleetSpec, PoolSpec, TrafficSpec
from fleet.simulation import Simulation
from tests.conftest import PrometheusStarter, unpack_scenario

FILES = ["gateway.jsonl.zst", "requests.jsonl.zst", "truth.json", "tsdb.tar.zst"]
TTFT = "vllm:time_to_first_token_seconds_bucket"
START = 1_790_000_100.0


def small(minutes: float = 10.0, **changes: Any) -> FleetSpec:
    pools = (PoolSpec("a", replicas=2, version="0.32.0"), PoolSpec("s", "sglang", 1, version="0.5.18"))
    traffic = (TrafficSpec("chat", "a", rate=0.5), TrafficSpec("batch", "s", rate=0.2))
    return FleetSpec(pools, traffic, start=START, end=START + 60 * minutes, seed=4, **changes)


@pytest.fixture(scope="module")
def recording() -> Recording:
    sim = Simulation(small())
    faces, out = FleetFaces(sim, edge=False), Recording()
    for tick in play(sim, faces, START + 600):
        out.add(tick)
    return out


def test_ticks_lie_on_the_grid_and_every_target_is_in_each() -> None:
    sim = Simulation(small(2))
    ticks = list(play(sim, FleetFaces(sim), START + 120))
    assert [t.t for t in ticks] == [START + 15 * i for i in range(1, 9)]
    names = ["a-0", "a-0-gpu", "a-1", "a-1-gpu", "s-0", "s-0-gpu", "gateway-0"]
    assert all([t.name for t in tick.targets] == names for tick in ticks)


def test_a_restart_begins_a_new_page_and_loses_no_answer() -> None:
    fault = FaultSpec("restart", START + 300, None, "a", (0,), {"down": 30.0})
    sim = Simulation(small(faults=(fault,)))
    faces = FleetFaces(sim, edge=False)
    starts, down, answered, told = set(), 0, 0, 0
    for tick in play(sim, faces, START + 600):
        target = next(t for t in tick.targets if t.name == "a-0")
        down += target.page is None
        if target.page is not None:
            starts.add(target.start)
        answered += sum(a.status == 200 for a in tick.seen.attempts)
        told += sum(f.finish_reason in ("stop", "length") for _, f in tick.seen.finishes)
    assert len(starts) == 2
    assert down >= 1
    assert answered == told


def test_a_silent_target_gives_no_scrape_and_a_stale_one_repeats_itself() -> None:
    gap = FaultSpec("telemetry", START + 100, 60.0, "a", (0,), {"gap": True})
    stale = FaultSpec("telemetry", START + 100, 120.0, "a", (1,), {"stale": True})
    sim = Simulation(small(5, faults=(gap, stale)))
    bodies: dict[str, list[str | None]] = {"a-0": [], "a-1": []}
    for tick in play(sim, FleetFaces(sim, edge=False), START + 300):
        for t in tick.targets:
            if t.name in bodies:
                bodies[t.name].append(t.body())
    assert [b is None for b in bodies["a-0"][6:12]] == [True] * 4 + [False] * 2
    assert len(set(bodies["a-1"][6:14])) == 1
    assert len(set(bodies["a-1"][14:])) > 1


# ------------------------------------------------------------------------------------------------------ as files


def test_a_written_scenario_is_one_that_prometheus_and_the_importers_read(
    tmp_path: Path, prometheus: PrometheusStarter
) -> None:
    fault = FaultSpec("slow", START + 300, 200.0, "a", (1,), {"factor": 0.5}, "slow_replica")
    folder = tmp_path / "s"
    try:
        truth = write_scenario(small(faults=(fault,), name="try"), Simulation, folder)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    assert sorted(p.name for p in folder.iterdir()) == FILES
    assert truth == json.loads((folder / "truth.json").read_text())
    assert [(i["kind"], i["replicas"], i["start"]) for i in truth["incidents"]] == [
        ("slow_replica", ["a-1"], int(START) + 300)
    ]
    scenario = unpack_scenario(folder, tmp_path / "un")
    with prometheus(scenario.tsdb) as url:
        done = ask(url, "sum(vllm:request_success_total)", START + 600)[0]
        before = ask(url, "sum(vllm:request_success_total)", START + 15)[0]
        ups = ask(url, "count_over_time(up[10m:15s])", START + 600)
    import zstandard

    with (folder / "gateway.jsonl.zst").open("rb") as raw:
        rows = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw).read().splitlines()
    answered = [r for r in map(json.loads, rows) if r["pool"] == "a" and r["status"] == 200]
    later = sum(r["ts"] > START + 15 for r in answered)
    assert float(done["value"][1]) - float(before["value"][1]) == later > 100
    assert len(ups) == 6
    assert ups[0]["metric"].keys() >= {"job", "instance", "pool", "cluster"}


def ask(url: str, query: str, at: float) -> Any:
    import urllib.parse
    import urllib.request

    text = urllib.parse.urlencode({"query": query, "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}") as answer:
        return json.loads(answer.read())["data"]["result"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"file/x cannot be written .*Fix"):
        write_scenario(small(), Simulation, tmp_path / "file" / "x")


def test_without_promtool_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="apt-get install prometheus"):
        write_scenario(small(), Simulation, tmp_path / "x")
    assert list((tmp_path / "x").iterdir()) == []


# ------------------------------------------------------------------------------------------------------ the past


def test_the_past_grows_without_a_fall_into_what_follows(recording: Recording) -> None:
    past = Past(recording, 1)
    last = recording.times[-1]
    before: dict[str, Any] = {}
    slots = [
        *past.coarse(last - 86400, last - 7200),
        *past.fine(last - 7200, recording.times[0]),
        *past.settle(),
    ]
    assert [s.t for s in slots] == sorted(s.t for s in slots)
    for slot in slots:
        for exposed, sample in slot.samples:
            assert exposed.page is not None
            grows = exposed.page.cumulative[: len(sample.values)]
            if exposed.name in before:
                old = before[exposed.name]
                fell = (sample.values[: len(old)] < old - 1e-6) & grows[: len(old)]
                assert not fell.any(), exposed.name
            before[exposed.name] = sample.values
    for exposed, sample in slots[-1].samples:
        assert exposed.page is not None
        shown = exposed.page.snapshot()[: len(sample.values)]
        assert np.allclose(shown, sample.values, equal_nan=True)


def test_counts_of_the_past_stay_whole_and_buckets_ordered(recording: Recording) -> None:
    past = Past(recording, 2)
    last = recording.times[-1]
    *_, slot = past.coarse(last - 20 * 3600, last)
    for exposed, sample in slot.samples:
        if exposed.labels["job"] != "vllm":
            continue
        series, values = visible(sample)
        buckets = [v for (n, _), v in zip(series, values, strict=True) if n == TTFT]
        assert buckets == sorted(buckets)
        assert all(float(b).is_integer() for b in buckets)
        assert buckets[-1] > 0
    list(past.settle())


def test_requests_of_the_past_are_other_requests_at_that_time(recording: Recording) -> None:
    past = Past(recording, 3)
    last = recording.times[-1]
    seen: set[str] = set()
    for slot in past.fine(last - 3600, last - 1800):
        for _, f in past.finishes(slot, 0.9):
            assert slot.t - 16 <= f.t <= slot.t + 1
            assert f.id not in seen
            seen.add(f.id)
    assert len(seen) > 100


def test_too_short_a_recording_is_refused() -> None:
    short = Recording()
    short.times += [1.0, 16.0]
    with pytest.raises(ValueError, match=str(BLOCK_TICKS)):
        Past(short, 1)


# ----------------------------------------------------------------------------------------------------- the story


class Stage:
    """What a director acts on."""

    def __init__(self) -> None:
        self.faults: list[FaultSpec] = []

    def inject(self, fault: FaultSpec) -> None:
        self.faults.append(fault)


def test_the_story_repeats_and_speed_shortens_its_scenes() -> None:
    stage, length = Stage(), sum(s.seconds for s in STORY)
    director = Director(STORY, 100.0, speed=2.0)
    begun: list[str] = []
    for t in range(0, int(length) + 100, 5):
        begun += [s.name for s in director.advance(stage, float(t))]  # type: ignore[arg-type]
    names = [s.name for s in STORY]
    assert begun[: len(names) * 2] == names * 2
    first = stage.faults[0]
    assert (first.kind, first.start, first.duration) == ("knobs", 220.0, 540.0)
    assert first.params["ramp"] == 360.0
    assert director.round >= 2


def test_every_fault_of_the_story_is_one_that_the_simulation_knows() -> None:
    from fleet.fleets import demo
    from fleet.mechanisms import MECHANISMS

    pools = {p.name for p in demo().pools}
    for scene in STORY:
        if scene.fault is not None:
            assert scene.fault.kind in MECHANISMS
            assert scene.fault.pool in pools


def test_a_scenario_becomes_a_story_around_its_faults() -> None:
    fault = FaultSpec("slow", START + 300, 200.0, "a", (1,), note="one is slow")
    scenes = scripted(small(faults=(fault,), name="x"))
    assert [(s.text, s.seconds) for s in scenes[1:2]] == [("one is slow", 200.0)]
    assert isinstance(scripted(small())[0], Scene)
    with pytest.raises(ValueError, match="speed"):
        Director(STORY, 0.0, 0.0)


def test_a_hidden_series_is_in_no_sample() -> None:
    page = Page()
    page.gauge("a", {}, 1)
    page.gauge("b", {"x": "y"}, 2)
    series, values = visible(Sample(page.series, page.snapshot(), frozenset({0})))
    assert series == [("b", {"x": "y"})]
    assert values.tolist() == [2]
    assert Exposed("n", {}, page, gone=frozenset({1})).body() == "# HELP a a\n# TYPE a gauge\na 1.0\n"
