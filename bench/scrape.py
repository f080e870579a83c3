"""CPU per scrape beside a Debian Prometheus: the same loopback targets, the same bodies, at the same time, storage included.

``python -m bench.scrape [--targets 500] [--every 15] [--minutes 2.5] [--json]``

Our process is the real ``gustfront collect`` on a configuration file, writing to SQLite; Prometheus runs with its defaults. CPU
seconds (user + system of the process, from /proc) are counted over the same window after a warm-up in which each target was
scraped at least twice. A lost scrape is one that our database does not hold although it was due.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import create_engine, text

from bench.bodies import load_pair
from core.frames import Layout
from tests.servers import free_port

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def addresses(n: int, port: int) -> list[str]:
    """``n`` loopback addresses, each another target."""
    return [f"127.0.{1 + i // 250}.{1 + i % 250}:{port}" for i in range(n)]


def get_json(url: str) -> Any:
    """The JSON answer of a GET."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def write_configs(folder: Path, targets: list[str], every: float) -> tuple[Path, Path]:
    """Ours and Prometheus's configuration of the same targets."""
    ours = folder / "gustfront.yaml"
    pools = [{"url": t, "labels": {"pool": f"pool-{i % 4}"}} for i, t in enumerate(targets)]
    scrape = {"name": "vllm", "targets": pools, "every": f"{every:g}s", "timeout": f"{min(5.0, every):g}s"}
    ours.write_text(
        yaml.safe_dump({"database": f"sqlite:///{folder}/gustfront.db", "sources": [{"scrape": scrape}]})
    )
    theirs = folder / "prometheus.yml"
    groups = [{"targets": targets[k::4], "labels": {"pool": f"pool-{k}"}} for k in range(4)]
    theirs.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": f"{every:g}s", "scrape_timeout": f"{min(5.0, every):g}s"},
                "scrape_configs": [{"job_name": "vllm", "static_configs": groups}],
            }
        )
    )
    return ours, theirs


def settle(stats: str, wanted: int, every: float, ours: subprocess.Popen[bytes]) -> None:
    """Wait until both have asked ``wanted`` times, then for one more interval."""
    end = time.monotonic() + 40 * every
    while min(get_json(stats)["requests"].get(who, 0) for who in ("gustfront", "prometheus")) < wanted:
        if ours.poll() is not None or time.monotonic() > end:
            raise SystemExit("the scrapers did not get going")
        time.sleep(0.5)
    time.sleep(every)


def our_sizes(database: Path, begin: float, end: float, per_target: float) -> dict[str, float]:
    """Frames, bytes and samples of our database in a window (Unix seconds), and scrapes that are missing."""
    engine = create_engine(f"sqlite:///{database}")
    samples = stored = 0
    with engine.connect() as c:
        layouts = {str(k): str(v) for k, v in c.execute(text("select id, columns from layouts")).all()}
        rows = c.execute(
            text("select layout_id, count(*), sum(length(data)) from frames group by layout_id")
        ).all()
        for layout_id, count, size in rows:
            layout = Layout.from_json(layouts[layout_id])
            each = sum(len(k.edges) + 3 if k.kind == "histogram" else 1 for k in layout.columns)
            samples += each * count
            stored += size
        where = {"a": int(begin * 1000), "b": int(end * 1000)}
        query = "select target_id, count(*) from frames where t1_ms > :a and t1_ms <= :b group by target_id"
        counts = [n for _, n in c.execute(text(query), where).all()]
        failures = c.execute(
            text("select count(*) from scrape_failures where t_ms > :a and t_ms <= :b"), where
        ).scalar()
    engine.dispose()
    return {
        "samples": samples,
        "bytes_per_sample": stored / max(samples, 1),
        "frames_in_window": sum(counts),
        "targets_with_frames": len(counts),
        "least_frames_of_a_target": min(counts, default=0),
        "failed": failures or 0,
        "file_mib": sum(p.stat().st_size for p in database.parent.glob(database.name + "*") if p.is_file())
        / 2**20,
    }


def prometheus_sizes(port: int, data: Path) -> dict[str, float]:
    """Bytes a sample of Prometheus: its head written out as a block, and the log it keeps meanwhile."""
    urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/admin/tsdb/snapshot", method="POST"),
        timeout=60,
    )
    samples = chunks = index = 0
    for meta in data.glob("snapshots/*/*/meta.json"):
        samples += json.loads(meta.read_text())["stats"].get("numSamples", 0)
        chunks += sum(p.stat().st_size for p in (meta.parent / "chunks").iterdir())
        index += (meta.parent / "index").stat().st_size
    wal = sum(p.stat().st_size for p in (data / "wal").rglob("*") if p.is_file())
    return {
        "samples": samples,
        "chunk_bytes_per_sample": chunks / max(samples, 1),
        "block_bytes_per_sample": (chunks + index) / max(samples, 1),
        "wal_bytes_per_sample": wal / max(samples, 1),
    }


def run(targets: int, every: float, minutes: float) -> dict[str, Any]:
    """Run both for ``minutes`` after the warm-up; all figures."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed; on Debian: apt-get install prometheus")
    steps = int(minutes * 60 / every) + 20
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="bench-scrape-") as name:
        folder = Path(name)
        try:
            port, prom_port = free_port(), free_port()
            fleet = subprocess.Popen(
                [sys.executable, "-m", "bench.fleet_server", str(port), str(every), str(steps)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            processes.append(fleet)
            assert fleet.stdout is not None
            fleet.stdout.readline()
            ours_cfg, theirs_cfg = write_configs(folder, addresses(targets, port), every)
            with (
                (folder / "gustfront.log").open("wb") as our_log,
                (folder / "prometheus.log").open("wb") as their_log,
            ):
                ours = subprocess.Popen(
                    [sys.executable, "-m", "app.cli", "--config", str(ours_cfg), "collect"],
                    cwd=ROOT,
                    stdout=our_log,
                    stderr=our_log,
                )
                theirs = subprocess.Popen(
                    [
                        program,
                        f"--config.file={theirs_cfg}",
                        f"--storage.tsdb.path={folder}/tsdb",
                        f"--web.listen-address=127.0.0.1:{prom_port}",
                        "--web.enable-admin-api",
                    ],
                    stdout=their_log,
                    stderr=their_log,
                )
            processes += [ours, theirs]
            stats = f"http://127.0.0.1:{port}/stats"
            settle(stats, 3 * targets, every, ours)
            begin, before = time.time(), get_json(stats)["requests"]
            cpu_before = {"gustfront": cpu_seconds(ours.pid), "prometheus": cpu_seconds(theirs.pid)}
            time.sleep(minutes * 60)
            end, after = time.time(), get_json(stats)["requests"]
            cpu_after = {"gustfront": cpu_seconds(ours.pid), "prometheus": cpu_seconds(theirs.pid)}
            time.sleep(2.5)  # the last commit of the window
            memory = {"gustfront": memory_mib(ours.pid), "prometheus": memory_mib(theirs.pid)}
            theirs_size = prometheus_sizes(prom_port, folder / "tsdb")
            ours_size = our_sizes(folder / "gustfront.db", begin, end, (end - begin) / every)
            if ours.poll() is not None:
                raise SystemExit((folder / "gustfront.log").read_text()[-3000:])
            return report(
                before,
                after,
                cpu_before,
                cpu_after,
                memory,
                ours_size,
                theirs_size,
                targets,
                every,
                end - begin,
            )
        finally:
            for process in processes:
                process.kill()
                process.wait()


def report(
    before: Mapping[str, int],
    after: Mapping[str, int],
    cpu_before: Mapping[str, float],
    cpu_after: Mapping[str, float],
    memory: Mapping[str, float],
    ours_size: Mapping[str, float],
    theirs_size: Mapping[str, float],
    targets: int,
    every: float,
    seconds: float,
) -> dict[str, Any]:
    """The figures of a run."""
    pair = load_pair()
    out: dict[str, Any] = {
        "body": pair.origin,
        "series": len(pair.later),
        "moving_share": round(pair.share, 3),
        "targets": targets,
        "every_s": every,
        "window_s": round(seconds, 1),
    }
    for who in ("gustfront", "prometheus"):
        scrapes = after.get(who, 0) - before.get(who, 0)
        out[who] = {
            "scrapes": scrapes,
            "cpu_s": round(cpu_after[who] - cpu_before[who], 2),
            "cpu_ms_per_scrape": round(1000 * (cpu_after[who] - cpu_before[who]) / max(scrapes, 1), 3),
            "cpu_s_until_warm": round(cpu_before[who], 2),
            "memory_mib": round(memory[who], 1),
        }
    out["gustfront"] |= {k: round(v, 3) for k, v in ours_size.items()}
    out["prometheus"] |= {k: round(v, 3) for k, v in theirs_size.items()}
    out["ratio"] = round(out["gustfront"]["cpu_ms_per_scrape"] / out["prometheus"]["cpu_ms_per_scrape"], 3)
    due = int(seconds // every)
    lost = targets * due - min(targets * due, int(ours_size["frames_in_window"]))
    out["lost_scrapes"] = max(lost, int(ours_size["failed"]))
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=500)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run(options.targets, options.every, options.minutes)
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        return
    for key, value in result.items():
        print(f"{key}: {value}")
    print(
        f"CPU per scrape, ours / Prometheus's: {result['ratio']} (goal 0.6), lost scrapes: {result['lost_scrapes']}"
    )


if __name__ == "__main__":
    main()
