"""The two logs: a sample of answers (requests.jsonl) and every attempt at the gateway (gateway.jsonl)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import IO, Any

from fleet.model import Attempt, Finish, ReplicaState
from fleet.outputs.writer import Writer


def answer(replica: ReplicaState, f: Finish, text: str) -> dict[str, Any]:
    """One line of requests.jsonl."""
    return {
        "id": f.id,
        "ts": round(f.t, 3),
        "instance": replica.address,
        "pool": replica.pool,
        "engine": replica.engine,
        "model": replica.model,
        "workload": f.workload,
        "session": f.session,
        "turn": f.turn,
        "prompt_tokens": f.prompt_tokens,
        "output_tokens": f.output_tokens,
        "ttft_s": round(f.ttft, 4),
        "e2e_s": round(f.e2e, 4),
        "queue_s": round(f.queue, 4),
        "cached_tokens": f.cached_tokens,
        "finish_reason": f.finish_reason,
        "accept_length": None if f.accept_length is None else round(f.accept_length, 3),
        "output": text,
    }


def attempt(a: Attempt, tenants: bool = False) -> dict[str, Any]:
    """One line of gateway.jsonl."""
    out: dict[str, Any] = {
        "ts": round(a.ts, 3),
        "workload": a.workload,
        "pool": a.pool,
        "upstream": a.upstream,
        "status": a.status,
        "ttft_s": None if a.ttft is None else round(a.ttft, 3),
        "duration_s": round(a.duration, 3),
        "prompt_tokens": a.prompt_tokens,
        "output_tokens": a.output_tokens,
        "session": a.session,
    }
    if tenants:
        out["tenant"] = a.tenant
    return out


def line(data: dict[str, Any]) -> str:
    """As one JSON line."""
    return json.dumps(data, ensure_ascii=False) + "\n"


class Sampler:
    """A random ``share`` of finished requests, decided by the request's id."""

    def __init__(self, seed: int, share: float) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share is {share}; it must lie between 0 and 1")
        self.seed, self.share = seed, share
        self._writer = Writer(seed)

    def lines(self, finishes: Iterable[tuple[ReplicaState, Finish]]) -> list[str]:
        """The lines of those sampled; a prefill worker answers nobody."""
        out = []
        for replica, f in finishes:
            if replica.role == "prefill" or f.finish_reason not in ("stop", "length"):
                continue
            if Random(f"{self.seed}:sample:{f.id}").random() < self.share:
                out.append(line(answer(replica, f, self._writer.text(f))))
        return out


class Rolling:
    """A plain JSON-lines file that is begun again when it grows beyond ``limit`` bytes."""

    def __init__(self, path: Path, limit: int = 64 * 2**20) -> None:
        self.path, self.limit = path, limit
        self._file: IO[str] = path.open("w", encoding="utf-8")

    def write(self, lines: Iterable[str]) -> None:
        """Append; readers see whole lines."""
        self._file.writelines(lines)
        self._file.flush()
        if self._file.tell() > self.limit:
            self._file.close()
            self.path.replace(self.path.with_suffix(self.path.suffix + ".1"))
            self._file = self.path.open("w", encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
