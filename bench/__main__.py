"""Every benchmark, one after another: ``python -m bench [NAME ...]``, or ``make bench``.

Each runs in a process of its own and prints figures beside a peer's from the same run; none has a pass mark. One that needs
what is not on this machine says so and the next one goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHES = {
    "parse": ("repeated parse of a vLLM body beside the official parser", []),
    "scrape": ("CPU per scrape, bytes a sample: 500 targets beside Prometheus", []),
    "backfill": ("back-fill of a history beside reading it through the client library", []),
    "store": ("ingest rate, bytes a sample, roll-up reads", []),
    "rollup_p99": ("p99 per class over 24 h for 200 replicas from roll-ups", []),
    "app": ("first render and rerun of the screens in Chromium", []),
    "screens": ("all screens over 200 replicas and 14 days, and 25 visitors at once", []),
    "text": ("text rules: speed, recall and false positives", []),
    "documents": ("hard text rules on ordinary documents of this machine", []),
    "load_verdict": ("size and power of the load verdict by simulation", ["--runs", "40"]),
    "detect_scale": ("a tick of the detectors over many replicas", []),
    "ablation": ("which parts of the detectors carry the result, on kept histories", ["--every", "4"]),
    "odd": ("gustfront odd: faults named, quiet windows, seconds", []),
    "nab": ("the generic series detector on the public benchmark, beside the published scores", []),
    "fleet_calibration": ("the simulated fleet beside measured ones", []),
    "sweep": ("every fault and calm event, five seeds, judged against the truth", []),
    "peers": ("the same histories judged by Grafana's bands, Netdata's k-means and static rules", []),
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; the number of those that failed."""
    unknown = [n for n in names if n not in BENCHES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}. There are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    failed = 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in names or BENCHES:
        what, arguments = BENCHES[name]
        print(f"\n== {name}: {what}", flush=True)
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}", *arguments], cwd=ROOT, env=environment, check=False
        )
        failed += done.returncode != 0
        ending = "" if done.returncode == 0 else f", ended with {done.returncode}"
        print(f"-- {name} took {time.perf_counter() - begun:.0f} s{ending}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
