"""Back-fill of whole histories out of a real Prometheus: time, memory, size and whether every request was counted once.

``python bench/backfill.py [SCENARIO ...] [--database URL]`` (default: all scenarios of the shared material). Each history is read
twice in processes of their own: its raw samples through prometheus-api-client alone, then by ``backfill`` into a database.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.collectors.prometheus_truth import (
    CLASSES,
    SELECTOR,
    class_of,
    frame_sums,
    increases,
)
from tests.conftest import shared_folder, unpack_scenario
from tests.servers import prometheus_server

TTFT = ["vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count"]
MIB = 1024 * 1024


def usage() -> dict[str, float]:
    """CPU seconds and peak memory of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "rss_mib": used.ru_maxrss / 1024}


def library(url: str, start: float, end: float) -> dict[str, Any]:
    """The raw samples through the library alone, in windows of 15 minutes, values turned into numbers."""
    from prometheus_api_client import PrometheusConnect

    began = time.monotonic()
    connect = PrometheusConnect(url=url, timeout=60)
    n = 0
    for at in range(int(start), int(end), 900):
        for row in connect.custom_query(f"{SELECTOR}[900s]", params={"time": at + 899.999}, timeout=60):
            n += len([float(v) for _, v in row["values"]])
    return {"seconds": time.monotonic() - began, "samples": n, **usage()}


def ours(url: str, start: float, end: float, database: str) -> dict[str, Any]:
    """``backfill`` into a database."""
    from collectors.backfill import backfill
    from collectors.dictionary import load_dictionary
    from core.classes import ClassRules
    from core.config_models import PrometheusSource
    from core.roles import Roles
    from sql.store import Store

    began = time.monotonic()
    with Store.open(database) as store:
        result = backfill(
            store,
            PrometheusSource(url=url, selector=SELECTOR),
            load_dictionary(),
            ClassRules.from_config(CLASSES),
            Roles(),
            start,
            end,
        )
        seconds = time.monotonic() - began
        out = {
            "seconds": seconds,
            "samples": result.samples,
            "frames": result.inserted,
            "restarts": result.restarts,
            "problems": {p.code: p.count for p in result.problems},
            "complete": result.complete,
            **usage(),
        }
        counts: dict[str, int] = defaultdict(int)
        for (class_, _), per_bucket in frame_sums(
            list(store.frames(start, end + 60)), "ttft_seconds"
        ).items():
            counts[class_] += sum(per_bucket)
    return {**out, "counts": counts}


def child(*argv: str) -> dict[str, Any]:
    """Run this file for one job and read what it printed."""
    done = subprocess.run([sys.executable, __file__, *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def bench(source: Path, database: str | None) -> bool:
    """One history; prints a line; whether the counts are right."""
    with tempfile.TemporaryDirectory() as folder:
        history = unpack_scenario(source, Path(folder))
        file = Path(folder) / "gustfront.db"
        span = (str(history.start), str(history.end))
        with prometheus_server(history.tsdb) as url:
            alone = child("--job", "library", url, *span)
            full = child("--job", "ours", url, *span, "--database", database or f"sqlite:///{file}")
            truth = increases(url, TTFT, history.start, history.end, class_of)
        blocks = sum(f.stat().st_size for f in history.tsdb.glob("0*/**/*") if f.is_file())
        size = file.stat().st_size if file.exists() else 0
    right = full["counts"] == truth and full["complete"]
    verdict = "exact" if right else f"WRONG {full['counts']} against {truth}"
    print(
        f"{source.name:20} {full['samples']:>9,} samples  {full['seconds']:5.1f} s  {full['cpu']:5.1f} s CPU"
        f"  {full['rss_mib']:4.0f} MiB  {full['frames']:,} frames  {full['restarts']} restarts"
        f"  | library alone {alone['seconds']:.1f} s {alone['rss_mib']:.0f} MiB, ratio {full['seconds'] / alone['seconds']:.1f}"
        f"  | database {size / MIB:.1f} MiB, TSDB {blocks / MIB:.1f} MiB"
        f"  | TTFT counts {verdict}"
        f" {full['problems'] or ''}",
        flush=True,
    )
    return bool(right)


def main() -> int:
    """Run the histories named, or all; exit 1 where a count is wrong."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("scenario", nargs="*")
    p.add_argument("--database")
    p.add_argument("--job", choices=["library", "ours"])
    a = p.parse_args()
    if a.job:
        url, start, end = a.scenario
        if a.job == "library":
            print(json.dumps(library(url, float(start), float(end))))
        else:
            print(json.dumps(ours(url, float(start), float(end), a.database)))
        return 0
    shared = shared_folder()
    if shared is None:
        print("the shared material is not here (set GUSTFRONT_SHARED)", file=sys.stderr)
        return 2
    names = a.scenario or sorted(d.name for d in (shared / "scenarios").iterdir() if d.is_dir())
    right = [bench(shared / "scenarios" / name, a.database) for name in names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
