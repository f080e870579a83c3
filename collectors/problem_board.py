"""Problems between two visits of the writer: repeated ones are counted, not repeated, and their number is bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace

from core.records import Problem

SOURCE = "collect"
"""The source of problems that the collector has with itself."""
KEPT = 10_000


class ProblemBoard:
    """Thread-safe. ``kept``: different problems held at most; what comes beyond is dropped."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._problems: dict[tuple[str, str, str], Problem] = {}

    def put(self, problem: Problem) -> None:
        """Note one; the newest message of the same (source, code, subject) stays, counts add up."""
        key = (problem.source, problem.code, problem.subject)
        with self._lock:
            known = self._problems.get(key)
            if known is not None:
                problem = replace(problem, count=known.count + problem.count)
            elif len(self._problems) >= self._kept:
                return
            self._problems[key] = problem

    def own(self, code: str, subject: str, message: str, fix: str, count: int = 1) -> None:
        """Note one of the collector itself."""
        self.put(Problem(time.time(), SOURCE, code, subject, message, fix, count))

    def take(self) -> list[Problem]:
        """All, which are then forgotten."""
        with self._lock:
            found, self._problems = self._problems, {}
        return list(found.values())

    def give_back(self, problems: Iterable[Problem]) -> None:
        """Those that could not be stored, to be counted together with what has come meanwhile."""
        for problem in problems:
            key = (problem.source, problem.code, problem.subject)
            with self._lock:
                newer = self._problems.get(key)
                self._problems[key] = (
                    problem if newer is None else replace(newer, count=newer.count + problem.count)
                )
