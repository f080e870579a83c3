"""How long a back-test takes and what it says: ``python bench/backtest.py CONFIG START END [--lag 30] [--profile]``."""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.config import load_config
from core.times import parse_time
from detectors.backtest import LogLine, backtest
from sql.store import Store


def main() -> None:
    """Run one back-test and print its incidents as JSON, its time on standard error."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("config")
    p.add_argument("start")
    p.add_argument("end")
    p.add_argument("--lag", type=float, default=30.0)
    p.add_argument("--profile", action="store_true")
    p.add_argument("--log", action="store_true")
    a = p.parse_args()
    config = load_config(a.config)
    lines: list[LogLine] = []
    with Store.open(config.database, read_only=True) as store:
        began = time.perf_counter()
        profile = cProfile.Profile()
        if a.profile:
            profile.enable()
        found = backtest(store, config, parse_time(a.start), parse_time(a.end), a.lag, log=lines)
        if a.profile:
            profile.disable()
            pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(35)
        took = time.perf_counter() - began
    print(json.dumps([i.as_json() for i in found], ensure_ascii=False, indent=1))
    print(f"{took:.2f} s", file=sys.stderr)
    if a.log:
        for line in lines:
            print(f"{line.ts:.0f} {line.incident} {line.action}: {line.text}", file=sys.stderr)


if __name__ == "__main__":
    main()
