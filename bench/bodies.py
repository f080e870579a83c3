"""Bodies of a vLLM fleet for benchmarks: the series of a real engine, moving as they moved between two captures of it.

Where the shared captures are absent, a body of the same shape is generated (names and buckets of vLLM's documentation).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_LE = re.compile(r',?le="([^"]*)"')
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Pair:
    """The lines of the later body (comments and series in order) and each series' values in both bodies."""

    lines: list[str]
    later: dict[str, float]
    earlier: dict[str, float]
    origin: str

    @property
    def moving(self) -> list[str]:
        """Series of both bodies whose value differs."""
        return [k for k, v in self.later.items() if k in self.earlier and self.earlier[k] != v]

    @property
    def share(self) -> float:
        """Moving series over series of both."""
        return len(self.moving) / sum(k in self.earlier for k in self.later)


def _values(text: str) -> tuple[list[str], dict[str, float]]:
    lines: list[str] = []
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            if not line.startswith("# ORIGIN"):
                lines.append(line)
            continue
        key, value = line.rsplit(" ", 1)
        lines.append(key)
        values[key] = float(value)
    return lines, values


def load_pair() -> Pair:
    """The captured pair of a live vLLM, else a generated one."""
    folder = Path(os.environ.get("GUSTFRONT_SHARED") or ROOT.parent / "shared") / "captures"
    after, before = folder / "live-vllm-0.32.0-after.prom", folder / "live-vllm-0.32.0-before.prom"
    if after.is_file() and before.is_file():
        lines, later = _values(after.read_text())
        return Pair(lines, later, _values(before.read_text())[1], "captures of a live vLLM 0.32.0")
    lines, later = _values(_generated(200))
    return Pair(lines, later, _values(_generated(12))[1], "a generated body with vLLM's families")


def _generated(requests: int) -> str:
    seconds = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
    short = (
        0.001,
        0.005,
        0.01,
        0.02,
        0.04,
        0.06,
        0.08,
        0.1,
        0.25,
        0.5,
        0.75,
        1,
        2.5,
        5,
        7.5,
        10,
        20,
        40,
        80,
        160,
        640,
    )
    tokens = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
    histograms = {
        "time_to_first_token_seconds": short,
        "inter_token_latency_seconds": short,
        "request_time_per_output_token_seconds": short,
        **dict.fromkeys(
            ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds"),
            seconds,
        ),
        **dict.fromkeys(("request_prefill_time_seconds", "request_decode_time_seconds"), seconds),
        **dict.fromkeys(
            ("request_prompt_tokens", "request_generation_tokens", "iteration_tokens_total"), tokens
        ),
        **dict.fromkeys(("request_params_max_tokens", "request_max_num_generation_tokens"), tokens),
    }
    own = 'engine="0",model_name="m"'
    out = ["# TYPE process_start_time_seconds gauge", "process_start_time_seconds 1.79605690914e+09"]
    for name, kind, value in (
        ("num_requests_running", "gauge", 3),
        ("num_requests_waiting", "gauge", 0),
        ("kv_cache_usage_perc", "gauge", requests / 1000),
        ("num_preemptions_total", "counter", requests // 50),
        ("prompt_tokens_total", "counter", requests * 900),
        ("generation_tokens_total", "counter", requests * 200),
        ("prefix_cache_queries_total", "counter", requests * 900),
        ("prefix_cache_hits_total", "counter", requests * 500),
    ):
        out += [
            f"# HELP vllm:{name} {name}.",
            f"# TYPE vllm:{name} {kind}",
            f"vllm:{name}{{{own}}} {float(value)}",
        ]
    for reason in ("stop", "length", "abort", "error"):
        out.append(f'vllm:request_success_total{{{own},finished_reason="{reason}"}} {requests / 4}')
    rng = np.random.default_rng(1)
    for name, edges in histograms.items():
        middle = float(np.median(edges))
        seen = rng.lognormal(np.log(middle), 1.0, requests)
        out += [f"# HELP vllm:{name} Histogram of {name}.", f"# TYPE vllm:{name} histogram"]
        out += [f'vllm:{name}_bucket{{{own},le="{float(e)}"}} {float((seen <= e).sum())}' for e in edges]
        out.append(f'vllm:{name}_bucket{{{own},le="+Inf"}} {float(requests)}')
        out += [
            f"vllm:{name}_count{{{own}}} {float(requests)}",
            f"vllm:{name}_sum{{{own}}} {float(seen.sum())!r}",
        ]
    return "\n".join(out) + "\n"


def sequence(pair: Pair, steps: int, seed: int, requests_per_step: float = 20.0) -> list[bytes]:
    """``steps`` successive bodies of one engine: moving series go on as they went between the captures.

    Buckets of a histogram move together (new observations fall as they fell), counters by whole numbers, the rest by chance; what
    did not move between the captures does not move here.
    """
    rng = np.random.default_rng(seed)
    now = dict(pair.later)
    moving = set(pair.moving)
    groups: dict[str, list[tuple[float, str]]] = {}
    for key in pair.later:
        found = _LE.search(key)
        if found and "_bucket" in key:
            groups.setdefault(_LE.sub("", key, count=1).replace("_bucket", "", 1), []).append(
                (float(found[1]), key)
            )
    single = moving - {k for g in groups.values() for _, k in g}
    plans: list[tuple[list[str], np.ndarray, str, str, float]] = []
    for name, buckets in groups.items():
        keys = [k for _, k in sorted(buckets)]
        rise = np.array([pair.later[k] - pair.earlier.get(k, 0.0) for k in keys])
        each = np.diff(rise, prepend=0.0)
        total, count = name.replace("{", "_sum{", 1), name.replace("{", "_count{", 1)
        if "{" not in name:
            total, count = name + "_sum", name + "_count"
        if rise[-1] <= 0 or each.min() < 0 or not moving.intersection(keys):
            continue
        single -= {total, count}
        mean = (pair.later.get(total, 0.0) - pair.earlier.get(total, 0.0)) / rise[-1]
        plans.append((keys, each / each.sum(), total, count, mean))
    out: list[bytes] = []
    for _ in range(steps):
        n = int(rng.poisson(requests_per_step))
        for keys, weights, total, count, mean in plans:
            rise = np.cumsum(rng.multinomial(n, weights))
            for key, value in zip(keys, rise, strict=True):
                now[key] += float(value)
            if count in now:
                now[count] += n
            if total in now and n:
                scale = mean * n * rng.uniform(0.7, 1.3)
                now[total] += float(round(scale)) if float(now[total]).is_integer() else float(scale)
        for key in single:
            step = (pair.later[key] - pair.earlier[key]) / 10
            if float(now[key]).is_integer():
                now[key] += max(0, round(step * rng.uniform(0.2, 2)))
            else:
                now[key] = max(0.0, now[key] + step * rng.uniform(-0.5, 2))
        out.append(_text(pair, now))
    return out


def _text(pair: Pair, now: Mapping[str, float]) -> bytes:
    return (
        "\n".join(f"{line} {now[line]!r}" if line in now else line for line in pair.lines) + "\n"
    ).encode()
