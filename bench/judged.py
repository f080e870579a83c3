"""Back-tests of kept histories, themselves kept: by history and by the code that judged.

A result is named by the history and a digest of ``detectors/``, ``core/`` and ``sql/`` and of the configuration, so that a
changed detector judges anew and an interrupted sweep goes on where it stopped. They lie in ``judged`` in the folder of the
histories; a newer result of a history replaces the older one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bench.histories import HOURS, MOST, ROOT, History, history, home
from bench.score import Score, score
from core.kinds import KINDS
from detectors.backtest import backtest
from sql.store import Store

LAG = 30.0
JUDGES = ("detectors", "core", "sql")


@dataclass(frozen=True, slots=True)
class Judged:
    """What the detectors said of a history (as ``gustfront backtest --json`` prints it) beside the truth."""

    name: str
    seed: int
    truth: dict[str, Any]
    found: list[dict[str, Any]]
    seconds: float = 0.0

    @property
    def score(self) -> Score:
        """By the rules of :mod:`bench.score`; see :func:`counted`."""
        return score(self.truth, counted(self.truth, self.found))


def counted(truth: Mapping[str, Any], found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is scored. The scorer leaves out severity ``info``; but a true fault of a kind that never is more (telemetry) counts
    as found when it is shown: an info incident of that kind, in its pool, from its diagnosis on."""
    quiet = {(t["kind"], t["pool"]) for t in truth["incidents"] if KINDS[t["kind"]].severity == "info"}
    return [
        {**i, "severity": "ticket", "detected_at": i["detected_at"] or i["diagnosed_at"]}
        if i["severity"] == "info" and any((i["kind"], p) in quiet for p in i["pools"])
        else i
        for i in found
    ]


@cache
def code(folders: Sequence[str] = JUDGES) -> str:
    """A digest of the Python and data files below these folders."""
    digest = blake2b(digest_size=8)
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".yaml", ".tsv"}:
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def keep(key: str, mark: str, make: Callable[[], list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], float]:
    """The incidents kept under ``key`` for ``mark``, or those that ``make`` finds now, with the seconds that took."""
    folder = home() / "judged"
    path = folder / f"{key}@{mark}.json"
    if path.exists():
        found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return found, 0.0
    began = time.perf_counter()
    found = make()
    seconds = time.perf_counter() - began
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{key}.{os.getpid()}"
    part.write_text(json.dumps(found), "utf-8")
    part.replace(path)
    for old in folder.glob(f"{key}@*.json"):
        if old != path:
            old.unlink(missing_ok=True)
    return found, seconds


def _configured(one: History) -> str:
    text = blake2b((one.folder / "gustfront.yaml").read_bytes(), digest_size=4)
    return f"{code()}-{text.hexdigest()}"


def judge(name: str, seed: int, hours: float = HOURS, most: int | None = MOST) -> Judged:
    """One scenario with one seed: history and back-test, each the kept one or made now."""
    one = history(name, seed, hours=hours, most=most)
    config = one.config

    def run() -> list[dict[str, Any]]:
        with Store.open(config.database, read_only=True) as store:
            found = backtest(store, config, one.truth["start"], one.truth["end"], LAG)
        return [i.as_json() for i in found]

    found, seconds = keep(one.folder.name, _configured(one), run)
    return Judged(name, seed, one.truth, found, seconds)


def labelled(folder: Path) -> list[Path]:
    """The labelled histories below a folder (as ``gustfront demo --write`` makes them, or others)."""
    return sorted(p.parent for p in folder.glob("*/truth.json"))
