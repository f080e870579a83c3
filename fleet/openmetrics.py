"""Scrapes as Prometheus blocks: OpenMetrics text with times, two hours a piece, made into blocks by promtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import IO

from core.errors import EnvironmentProblem
from fleet.faces.numbers import python_number
from fleet.faces.page import escape
from fleet.faces.targets import Exposed, Sample

BLOCK_SECONDS = 7200.0
UNREAD = (
    "http_request_duration",
    "process_",
    "python_",
    "vllm:request_params_n",
    "vllm:request_max_num_generation_tokens",
    "vllm:nixl_num_descriptors",
    "vllm:nixl_post_time_seconds",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
)
"""Families that nobody reads and a thrifty scrape configuration drops (but not the process start)."""
KEPT = ("process_start_time_seconds",)


def _promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        raise EnvironmentProblem(
            "promtool is not installed; it makes the Prometheus blocks. "
            "Fix: apt-get install prometheus, or put promtool on the PATH"
        )
    return found


class BlockWriter:
    """``add`` scrapes in order of time, ``finish`` at the end. Temporary text lies in ``scratch``."""

    def __init__(self, blocks: Path, scratch: Path) -> None:
        self._program = _promtool()
        self._blocks, self._scratch = blocks, scratch
        self._file: IO[str] | None = None
        self._window = -1.0
        self._prefixes: dict[str, tuple[tuple[int, int, frozenset[int]], list[tuple[int, str]]]] = {}
        self.samples = 0

    def add(self, t: float, target: Exposed) -> None:
        """One scrape of one target, with its ``up``."""
        window = t // BLOCK_SECONDS
        if window != self._window:
            self._convert()
            self._window = window
        if self._file is None:
            self._file = (self._scratch / "samples.om").open("w", encoding="utf-8")
        when = f" {t:.3f}\n"
        sample = target.sample()
        common = {k: v for k, v in target.labels.items() if v}
        lines = [f"up{_braces(common)} {int(sample is not None)}{when}"]
        if sample is not None:
            values = sample.values.tolist()
            lines += [p + python_number(values[i]) + when for i, p in self._series(target, sample, common)]
        self.samples += len(lines)
        self._file.writelines(lines)

    def _series(self, target: Exposed, sample: Sample, common: dict[str, str]) -> list[tuple[int, str]]:
        key = (id(sample.series), len(sample.values), sample.hidden)
        known = self._prefixes.get(target.labels["instance"])
        if known is not None and known[0] == key:
            return known[1]
        out: list[tuple[int, str]] = []
        for i, (name, pairs) in enumerate(sample.series[: len(sample.values)]):
            if i in sample.hidden or (name.startswith(UNREAD) and name not in KEPT):
                continue
            labels = {k: v for k, v in pairs if v}
            # As Prometheus does without honor_labels: the target's own labels win.
            for clash in common.keys() & labels.keys():
                labels[f"exported_{clash}"] = labels.pop(clash)
            out.append((i, f"{name}{_braces({**labels, **common})} "))
        self._prefixes[target.labels["instance"]] = (key, out)
        return out

    def finish(self) -> None:
        """Convert what is left. EnvironmentProblem with promtool's words where that fails."""
        self._convert()

    def _convert(self) -> None:
        if self._file is None:
            return
        self._file.write("# EOF\n")
        self._file.close()
        self._file = None
        text = self._scratch / "samples.om"
        command = [
            self._program,
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "-q",
            str(text),
            str(self._blocks),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        text.unlink()
        if done.returncode:
            raise EnvironmentProblem(f"promtool could not make blocks: {done.stderr.strip()[-500:]}")


def _braces(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{k}="{escape(v)}"' for k, v in sorted(labels.items())) + "}"
