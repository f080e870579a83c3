"""What is too old goes, counted from the newest data; what an incident needs stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from core.config_models import RetentionConfig
from core.frames import Column, Layout, Reading, Target
from core.incidents import Incident
from core.records import OutputRecord, RequestRecord
from core.requests import fine_edges, fold
from sql.store import Store
from tests.sql.make import DONE, T0, TTFT, down, reading, target

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class Keep:
    """Everything for good unless said."""

    frames: float = 1e9
    rollups_minute: float = 1e9
    rollups_hour: float = 1e9
    rollups_replica: float = 1e9
    requests: float = 1e9
    outputs: float = 1e9
    max_bytes: int | None = None


def fill(store: Store, hours: int, *, of: Target, first: float = 0.0) -> None:
    """A reading each five minutes."""
    store.append(
        [
            reading(first + 300.0 * i, {DONE: i, TTFT: ((i, 0, 0, 0), 0.0)}, of=of)
            for i in range(int(hours * 12) + 1)
        ]
    )


def times(store: Store, pool: str = "p") -> list[float]:
    return [(f.t1 - T0) / HOUR for f in store.frames(0, 1e11, pools=[pool])]


def test_the_configured_retention_is_taken_as_it_is(store: Store) -> None:
    fill(store, 2, of=target())
    assert store.apply_retention(RetentionConfig()).frames == 0


def test_frames_go_by_age_counted_from_the_newest(store: Store) -> None:
    fill(store, 30, of=target())
    store.append([down(HOUR + 1), down(29 * HOUR + 1)])
    done = store.apply_retention(Keep(frames=10 * HOUR))
    assert done.frames == 20 * 12 - 1
    assert times(store)[0] == 20.0
    (_, up) = next(iter(store.uptime(0, 1e11).values()))
    assert (~up).sum() == 1
    assert store.apply_retention(Keep(frames=10 * HOUR)).frames == 0
    # states stay: the next reading continues
    store.append([reading(30 * HOUR + 300, {DONE: 365, TTFT: ((365, 0, 0, 0), 0.0)})])
    assert int(list(store.frames(0, 1e11))[-1].counts[-1]) in (0, 5)


def test_an_imported_history_does_not_vanish_because_a_live_fleet_goes_on(store: Store) -> None:
    fill(store, 5, of=target("old", pool="import", source="import"), first=-400 * DAY)
    fill(store, 5, of=target("new", pool="live", source="live"))
    done = store.apply_retention(Keep(frames=3 * HOUR, rollups_minute=3 * HOUR, rollups_hour=DAY))
    assert len(times(store, "import")) == len(times(store, "live")) == 3 * 12 + 1
    assert done.rollups > 0
    rows = store.rollups("request_success_total", 0, 1e11)
    assert {r.pool for r in rows} == {"import", "live"}
    assert len(rows) == 2 * (3 * 12 + 1)


def test_rollups_of_each_resolution_have_their_own_age(store: Store) -> None:
    fill(store, 48, of=target())
    store.apply_retention(Keep(rollups_minute=12 * HOUR, rollups_hour=24 * HOUR, rollups_replica=6 * HOUR))
    newest = T0 + 48 * HOUR

    def oldest(**more: object) -> float:
        return store.rollups("ttft_seconds", 0, 1e11, **more)[0].ts  # type: ignore[arg-type]

    assert newest - oldest() == pytest.approx(12 * HOUR, abs=300)
    assert newest - oldest(resolution=3600) == pytest.approx(24 * HOUR, abs=HOUR)
    assert newest - oldest(per_unit=True) == pytest.approx(6 * HOUR, abs=300)


def incident(**more: object) -> Incident:
    base = Incident(
        "i", "wedged", "page", "resolved", "x", T0 + 5 * HOUR, ended_at=T0 + 6 * HOUR, pools=("p",)
    )
    return replace(base, **more)  # type: ignore[arg-type]


def test_frames_around_an_incident_stay(store: Store) -> None:
    fill(store, 30, of=target())
    fill(store, 30, of=target("q1", pool="q"))
    store.save_incident(incident())
    store.apply_retention(Keep(frames=10 * HOUR))
    kept = [t for t in times(store) if t < 20]
    assert (kept[0], kept[-1], len(kept)) == (4.0, 6.0, 25)
    assert min(times(store, "q")) == 20.0


def test_an_incident_that_names_no_pool_pins_all_and_an_open_one_has_no_end(store: Store) -> None:
    fill(store, 30, of=target())
    fill(store, 30, of=target("q1", pool="q"))
    store.save_incident(incident(pools=(), state="open", ended_at=None))
    store.apply_retention(Keep(frames=10 * HOUR))
    assert min(times(store)) == min(times(store, "q")) == 4.0


def test_requests_and_outputs_go_by_age(store: Store) -> None:
    cells = fold([RequestRecord(T0 + i * HOUR, 200, "chat", 1.0) for i in range(48)], fine_edges())
    store.add_requests(cells)
    store.add_outputs([OutputRecord(str(i), T0 + i * HOUR, T0, "chat", pool="ab"[i % 2]) for i in range(49)])
    done = store.apply_retention(Keep(requests=10 * HOUR, outputs=DAY))
    assert (done.requests, done.outputs) == (37, 23)
    assert store.request_cells(0, 1e11)[0][0].minute == T0 + 37 * HOUR
    assert next(o.ts for o in store.outputs(0, 1e11)) == T0 + 23 * HOUR


def heavy(store: Store, hours: int) -> None:
    """Frames of about two kilobytes, a minute apart."""
    columns = tuple(Column("not_rolled_up", (("class", str(i)),), "sum") for i in range(400))
    layout, nothing = Layout(columns), np.zeros(0)
    totals = np.cumsum(np.random.default_rng(3).random((hours * 60, len(columns))), axis=0)
    store.append(
        [
            Reading(target(), T0 + 60.0 * i, layout, nothing, np.zeros(0, np.int64), row)
            for i, row in enumerate(totals)
        ]
    )


def test_a_size_limit_takes_the_oldest_frames_first_and_gives_the_room_back(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Store.open(f"sqlite:///{path}") as store:
        heavy(store, 40)
        before = store.size_bytes()
        done = store.apply_retention(Keep(max_bytes=before // 2))
        assert done.frames > 0
        assert store.size_bytes() <= before // 2
        left = times(store)
        assert left[-1] == pytest.approx(40, abs=0.1)
        assert left[0] > 10
    assert os.path.getsize(path) < before * 0.6  # noqa: PTH202


def test_a_size_limit_that_cannot_be_met_keeps_the_newest_hour_and_what_is_pinned(store: Store) -> None:
    heavy(store, 10)
    store.save_incident(incident(started_at=T0 + 2 * HOUR, ended_at=T0 + 2.5 * HOUR))
    store.apply_retention(Keep(max_bytes=1))
    left = times(store)
    assert [t for t in left if t < 8] == pytest.approx([1 + i / 60 for i in range(91)])
    assert len([t for t in left if t >= 8]) == 60 + 1


def test_retention_beside_a_writer(store_url: str, opener: Callable[[], Store]) -> None:
    with opener() as writer, opener() as keeper:
        for i in range(20):
            writer.append([reading(HOUR * i + 60.0 * k, {DONE: 60 * i + k}) for k in range(60)])
            keeper.apply_retention(Keep(frames=3 * HOUR))
        assert len(times(writer)) in (180, 181)
        assert sum(r.n for r in writer.rollups("request_success_total", 0, 1e11)) == 20 * 60 - 1
