"""The detectors on simulated fleets with known faults: ``python -m bench.fleet_scores [SCENARIO ...] [--seed N] [--hours H]``.

Each scenario is simulated, its scrapes go straight into a new database (the same plans and transactions as a scrape),
answers and gateway log through the importers; then a back-test, and its incidents against the truth. One table. ``--histories
DIR``: labelled histories in the folders below DIR (as ``gustfront demo --write`` makes them, or others) are read through a
real Prometheus, back-filled and scored beside; by default those of ``../shared/scenarios`` where that exists.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.histories import configuration, fill
from bench.score import Score, score
from collectors.backfill import backfill
from collectors.dictionary import load_dictionary
from collectors.outputs import import_outputs
from collectors.requests import import_requests
from core.classes import ClassRules
from core.config_sources import PrometheusSource
from core.roles import Roles
from detectors.backtest import backtest
from fleet import scenarios
from sql.store import Store

ROOT = Path(__file__).resolve().parent.parent
LAG = 30.0


def run(name: str, seed: int, hours: float) -> tuple[Score, list[dict[str, Any]], float]:
    """One scenario: its score, the incidents, seconds taken."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gustfront-bench-") as at:
        folder = Path(at)
        config = configuration(folder)
        spec = scenarios.build(name, seed, hours=hours)
        with Store.open(config.database) as store:
            truth = fill(spec, folder, config, store)
            found = [i.as_json() for i in backtest(store, config, truth["start"], truth["end"], LAG)]
    return score(truth, found), found, time.perf_counter() - began


def run_history(source: Path) -> tuple[Score, list[dict[str, Any]], float]:
    """A labelled history on disk, through Prometheus and back-fill."""
    from tests.conftest import unpack_scenario
    from tests.servers import prometheus_server

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gustfront-bench-") as at:
        folder = Path(at)
        config = configuration(folder)
        scenario = unpack_scenario(source, folder)
        rules, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
        with Store.open(config.database) as store:
            with prometheus_server(scenario.tsdb) as url:
                server = PrometheusSource(url=url, selector='{job!=""}')
                backfill(store, server, load_dictionary(), rules, roles, scenario.start, scenario.end)
            import_outputs(store, scenario.requests, rules, roles, config=config)
            import_requests(store, scenario.gateway, rules, roles, config=config)
            found = [i.as_json() for i in backtest(store, config, scenario.start, scenario.end, LAG)]
    return score(scenario.truth, found), found, time.perf_counter() - began


def histories(folder: Path) -> list[Path]:
    """The labelled histories below a folder."""
    return sorted(p.parent for p in folder.glob("*/truth.json"))


def table(total: Score) -> str:
    """All rows and the summary, as text."""
    lines = [f"{'scenario':26s} {'true kind':25s} {'said':25s} right  delay  scope load"]
    for r in total.rows:
        delay = "" if r.delay is None else f"{r.delay:6.0f}"
        load = "" if r.load is None else ("yes" if r.load else "no")
        right = "yes" if r.right else "NO"
        lines.append(
            f"{r.scenario:26s} {r.kind:25s} {r.said or '-':25s} {right:5s} {delay:>6s}  {r.overlap:5.2f} {load}"
        )
    lines += [f"{s:26s} FALSE ALARM {k} at {t} on {p}" for s, k, t, p in total.false]
    for key, value in total.summary().items():
        lines.append(f"  {key:32s} {'-' if value is None else f'{value:.3g}'}")
    return "\n".join(lines)


def _tell(name: str, result: Score, seconds: float) -> None:
    said = ", ".join(f"{r.said or 'missed'}{'' if r.right else ' (wrong)'}" for r in result.rows) or "silent"
    print(f"{name}: {said}; {len(result.false)} false; {seconds:.0f} s", file=sys.stderr, flush=True)


def _keep(folder: Path | None, name: str, found: list[dict[str, Any]]) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", help="all by default; none: no simulation")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--hours", type=float, default=scenarios.HOURS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="scenarios at the same time")
    parser.add_argument("--keep", type=Path, help="write each scenario's incidents here")
    parser.add_argument("--histories", type=Path, default=ROOT.parent / "shared" / "scenarios")
    args = parser.parse_args()
    names = [] if args.scenarios == ["none"] else args.scenarios or scenarios.names()
    ours, others = Score(), Score()
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        simulated = {n: pool.submit(run, n, args.seed, args.hours) for n in names}
        read = {p.name: pool.submit(run_history, p) for p in histories(args.histories)}
        for futures, total in ((simulated, ours), (read, others)):
            for name, future in futures.items():
                result, found, seconds = future.result()
                total += result
                _tell(name, result, seconds)
                _keep(args.keep, name, found)
    for title, total in (("simulated here", ours), ("histories on disk", others)):
        if total.replica_hours:
            print(f"== {title}\n{table(total)}")


if __name__ == "__main__":
    main()
