"""The series of the Numenta Anomaly Benchmark that were handed out, read from their archive into memory.

Expected in one folder: ``data.tar.zst`` (CSV files ``timestamp,value`` below ``data/``) and
``combined_windows.json`` (labelled windows by file name).
"""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import zstandard

from core.frames import FloatArray

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Series:
    """One file: ``t`` in Unix seconds, ``value``, and labelled windows as first and last index (both inside)."""

    name: str
    t: FloatArray
    value: FloatArray
    windows: tuple[tuple[int, int], ...]

    @property
    def step(self) -> float:
        """Seconds between points (median)."""
        return float(np.median(np.diff(self.t)))


def folder() -> Path | None:
    """Where the series are: ``$GUSTFRONT_SHARED/nab``, else ``../shared/nab``; None where they are not."""
    shared = Path(os.environ.get("GUSTFRONT_SHARED") or ROOT.parent / "shared")
    return shared / "nab" if (shared / "nab" / "data.tar.zst").is_file() else None


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def load(where: Path) -> list[Series]:
    """All labelled series, by name; ValueError where a window is not on the series' own times."""
    windows = json.loads((where / "combined_windows.json").read_text("utf-8"))
    with (where / "data.tar.zst").open("rb") as packed:
        raw = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed).read()
    out = []
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for member in tar:
            name = member.name.removeprefix("data/")
            body = tar.extractfile(member) if name in windows else None
            if body is None:
                continue
            rows = list(csv.DictReader(io.TextIOWrapper(body, "utf-8")))
            t = [_seconds(r["timestamp"]) for r in rows]
            try:
                spans = tuple((t.index(_seconds(a)), t.index(_seconds(b))) for a, b in windows[name])
            except ValueError as error:
                raise ValueError(f"{name}: a window is not on the series' times") from error
            out.append(Series(name, np.asarray(t), np.asarray([float(r["value"]) for r in rows]), spans))
    return sorted(out, key=lambda s: s.name)
