"""One tick of detection: fit what is due, evaluate every detector, fold findings into incidents.

Live detection and back-tests call the same :meth:`Fold.tick`; everything it remembers is in :meth:`Fold.dump`, so that a run may
be cut at any tick and taken up by another process with the same result.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from core.incidents import Finding
from core.records import Event
from detectors.accepted import Accepted, accepted, close
from detectors.contract import Context, Detector, Json
from detectors.cube import Cube
from detectors.enrich import enrich
from detectors.incidents import Change, Tracker, step
from detectors.samples import Samples
from detectors.window import Window

log = logging.getLogger(__name__)
REFIT_S = 300.0
ONSET_GAP_S = 900.0
VERSION = 1


class Fold:
    """The running state of all detectors and of the incidents they led to."""

    def __init__(
        self, context: Context, detectors: Sequence[Detector], state: Mapping[str, Any] | None = None
    ) -> None:
        self.context = context
        self.detectors = tuple(detectors)
        usable = state if state and state.get("version") == VERSION else {}
        self.baselines: dict[str, Json] = dict(usable.get("baselines", {}))
        self.states: dict[str, Json] = dict(usable.get("states", {}))
        self.spans: dict[str, list[list[float]]] = {
            k: [list(p) for p in v] for k, v in usable.get("spans", {}).items()
        }
        self.onsets: dict[str, list[float]] = {k: list(v) for k, v in usable.get("onsets", {}).items()}
        self.tracker = Tracker.from_json(usable.get("tracker", {}))
        self.shadow: list[Finding] = []
        self.errors: dict[str, str] = {}

    def dump(self) -> Json:
        """Everything that the next tick needs, as JSON types."""
        return {
            "version": VERSION,
            "baselines": self.baselines,
            "states": self.states,
            "spans": self.spans,
            "onsets": self.onsets,
            "tracker": self.tracker.to_json(),
        }

    def tick(
        self, cube: Cube, samples: Samples, events: Sequence[Event], now: float, as_of: float
    ) -> list[Change]:
        """Judge what was known at ``now``, when data up to ``as_of`` had arrived. Returns what changed."""
        stop = min(int(as_of // cube.step) - cube.first, cube.cells)
        if stop <= 0:
            return []
        known = accepted(events, as_of)
        window = Window(cube, stop, self.context, samples, events, self._excluded(cube, known))
        fits: list[Window] = []
        findings: list[Finding] = []
        self.shadow = []
        for d in self.detectors:
            try:
                found = self._run(d, window, fits, known)
            except (ArithmeticError, ValueError, KeyError, IndexError, TypeError) as e:
                # One detector that fails must not silence the others; the service shows the error.
                self.errors[d.kind] = f"{type(e).__name__}: {e}"
                log.exception("detector %s failed at %s", d.kind, as_of)
                continue
            self.errors.pop(d.kind, None)
            shown = d.kind not in self.context.shadow
            (findings if shown else self.shadow).extend(found)
        self.tracker, changes = step(self.tracker, findings, now)
        return [*changes, *close(self.tracker, known, now)]

    def _run(
        self, d: Detector, window: Window, fits: list[Window], known: Sequence[Accepted]
    ) -> Sequence[Finding]:
        due = window.end // REFIT_S * REFIT_S
        baseline = self.baselines.get(d.kind)
        if baseline is None or baseline["as_of"] < due:
            if not fits:
                # All detectors that are due learn from one window, so that what they share is computed once.
                fits.append(window.upto(int(due // window.step) - window.cube.first))
            baseline = self.baselines[d.kind] = d.fit(fits[0], due)
        verdict = d.evaluate(window, baseline, self.states.get(d.kind, {}))
        self.states[d.kind] = dict(verdict.state)
        heard = [f for f in verdict.findings if not any(a.mutes(f, window.end) for a in known)]
        findings = [enrich(window, f, self._onset(f, window.end)) for f in heard]
        for f in findings:
            for r in f.scope.replicas:
                self._exclude(f"{f.scope.pools[0] if f.scope.pools else ''}/{r}", f.onset, window.end)
        for key in verdict.abnormal:
            self._exclude(key, window.end - window.step, window.end)
        return findings

    def _onset(self, f: Finding, now: float) -> float:
        """The earliest onset that this kind gave for this pool without a break: what was seen to begin does not begin later."""
        key = f"{f.kind}|{','.join(f.scope.pools)}"
        known = self.onsets.get(key)
        first = f.onset if known is None or now - known[1] > ONSET_GAP_S else min(known[0], f.onset)
        self.onsets[key] = [first, now]
        return first

    def _exclude(self, key: str, since: float, until: float) -> None:
        spans = self.spans.setdefault(key, [])
        if spans and since <= spans[-1][1] + 60.0:
            spans[-1][1] = max(spans[-1][1], until)
            spans[-1][0] = min(spans[-1][0], since)
        else:
            spans.append([since, until])
        del spans[:-50]

    def _excluded(self, cube: Cube, known: Sequence[Accepted]) -> list[tuple[int, float, float]]:
        at: dict[str, list[int]] = {}
        for i, u in enumerate(cube.units):
            at.setdefault(f"{u.pool}/{u.replica}", []).append(i)
        out = [(i, a, b) for k, v in self.spans.items() for a, b in v for i in at.get(k, ())]
        for x in known:
            mine = {i for i, u in enumerate(cube.units) if x.covers(u.pool, u.replica)}
            # What was wrong since then is normal now, and what was normal before teaches no more.
            out = [s for s in out if s[0] not in mine or s[1] >= x.at or s[2] < x.since]
            out += [(i, cube.first * cube.step, x.since) for i in mine]
        return out
