"""GPU fault: a GPU reports an Xid that asks for draining, uncorrectable memory errors, or is gone.

Idea
    The last Xid code is sticky: it stays on the exporter until the next one or a reset, so a change is the event and the standing
    value is not. Most codes are software (13, 31, 43, 45); a few mean that the device must be drained. A GPU that falls off the
    bus says nothing any more: its lines vanish while those of its neighbours stay.

Formula
    Per replica, against the last scrape before::

        xid     the code changes to one of the drain class: 48 (double-bit error), 64 (row remapping failed), 79 (off the bus),
                95 (uncontained memory error), 119 and 120 (GSP), 140 (unrecovered memory error)
        ecc     uncorrectable memory errors rise; a row remapping failure; the device says it is unhealthy
        gone    fewer GPUs report than in the hour before, for a minute, while others of the same replica report

    It lasts while the code stands or the GPU is missing; without either, ten minutes after the last memory error.

Signals
    gpu_xid, gpu_ecc (uncorrectable), gpu_row_remap_failure, gpu_healthy, and the number of GPUs with gpu_sm_clock_hz.

Look-alikes
    Software Xids, an old code that stood when watching began, an exporter that restarts (all GPUs at once), slow_replica (clocks
    without an error), corrected errors.

Source
    incidents.md G2: NVIDIA Xid catalogue, vllm#18777.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.contract import Json, Need, Verdict
from detectors.measures import ITL, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.tail import learn_tail
from detectors.window import Window, nansum
from detectors.wording import names, number, seconds

F = NDArray[np.float64]
Units = NDArray[np.intp]
DRAIN = (48.0, 64.0, 79.0, 95.0, 119.0, 120.0, 140.0)
MEANS = {
    48: "double-bit memory error",
    64: "row remapping failed",
    79: "fallen off the bus",
    95: "uncontained memory error",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered memory error",
}
GONE_CELLS = 4
AFTER_ECC_S = 600.0
_FLOORS = {"itl": 0.05, "running": 0.15, "ttft": 0.15}


class GpuFault:
    """See the module's docstring."""

    kind = "gpu_fault"
    needs = (
        Need("xid_drain", "gpu_xid", "max", where=("xid", ("",)), codes=DRAIN),
        Need("xid_counted", "gpu_xid", "sum", where=("xid", tuple(f"{c:.0f}" for c in DRAIN))),
        Need("ecc", "gpu_ecc", where=("error", ("uncorrectable",))),
        Need("remap_failed", "gpu_row_remap_failure", "max"),
        Need("healthy", "gpu_healthy", "min"),
        Need("gpus", "gpu_sm_clock_hz", "count"),
        *needs("running", "waiting"),
    )
    hists = (TTFT, f"{ITL}:mean")

    def fit(self, history: Window, as_of: float) -> Json:
        """Normal of load and speed, for what it costs."""
        out = learn(history, as_of, _FLOORS, block_s=120.0)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool; the state remembers the last code of each replica and since when a fault stands."""
        known: Json = state.get("units", {})
        memory: Json = {}
        kinds: dict[int, tuple[str, float]] = {}
        drain, counted = _latest(window, "xid_drain"), window.value("xid_counted", 2)
        ecc = window.value("ecc", 1)[:, -1] if window.stop else np.zeros(0)
        failed, healthy = _latest(window, "remap_failed"), _latest(window, "healthy")
        missing = _missing(window)
        for i, u in enumerate(window.units):
            last = known.get(u.key, {})
            row: Json = {}
            code = drain[i]
            if code == code:
                row["code"] = int(code)
            elif "code" in last:
                row["code"] = last["code"]
            fresh = code > 0 and "code" in last and last["code"] != int(code)
            if fresh or (code > 0 and "xid" in last):
                row["xid"] = window.end if fresh else last["xid"]
                kinds[i] = (f"Xid {_name(int(code))}", row["xid"])
            if counted.shape[1] == 2 and counted[i, 1] > counted[i, 0]:
                row["counted"] = window.end
            elif window.end - last.get("counted", -np.inf) < AFTER_ECC_S:
                row["counted"] = last["counted"]
            if "counted" in row:
                kinds.setdefault(i, ("an Xid of the drain class", row["counted"]))
            if ecc[i] > 0:
                row["ecc"] = [last.get("ecc", [window.end])[0], window.end]
            elif window.end - last.get("ecc", [0.0, -np.inf])[1] < AFTER_ECC_S:
                row["ecc"] = last["ecc"]
            if "ecc" in row:
                kinds.setdefault(i, ("uncorrectable memory errors", row["ecc"][0]))
            for name, bad, what in (
                ("remap", failed[i] > 0, "row remapping failed"),
                ("sick", healthy[i] == 0, "the device says it is unhealthy"),
            ):
                if bad:
                    row[name] = last.get(name, window.end)
                    kinds.setdefault(i, (what, row[name]))
            if missing[i] > 0:
                row["gone"] = last.get("gone", window.end - GONE_CELLS * window.step)
                kinds.setdefault(i, (f"{missing[i]:.0f} of its GPUs gone", row["gone"]))
            if row:
                memory[u.key] = row
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n", "waiting")
        findings = []
        for pool, idx in window.pools.items():
            hit = np.asarray([i for i in idx if int(i) in kinds], np.intp)
            if len(hit):
                findings.append(self._finding(window, baseline, normal, m, pool, idx, hit, kinds))
        return Verdict(findings, {"units": memory} if memory else {})

    def _finding(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        hit: Units,
        kinds: dict[int, tuple[str, float]],
    ) -> Finding:
        case = Case(window, pool, hit, idx, normal, m)
        onset = min(kinds[int(i)][1] for i in hit)
        said = {window.units[i].replica: kinds[int(i)] for i in hit}
        what = names(f"{r}: {w}" for r, (w, _) in sorted(said.items()))
        alive = ~np.isnan(window.value("span", 5)[hit]).all(axis=1)
        slower = case.factor("itl") if alive.any() else float("nan")
        effect = (
            "Its engine is down."
            if not alive.any()
            else f"Its engine still serves, steps take {seconds(case.before['itl'])} → {seconds(case.now['itl'])}."
        )
        ecc = float(np.nansum(window.value("ecc")[hit][:, -240:]))
        gpus = window.value("gpus", 240)[hit]
        return case.finding(
            self.kind,
            title=f"GPU fault at {names(case.replicas)}: {names(sorted({w for w, _ in said.values()}))}",
            cause=f"{what}. {effect} Peers report nothing of the kind.",
            onset=onset,
            strength=float(np.log2(1 + len(hit))),
            confidence=0.95,
            severity="page" if not alive.all() or case.hurts(baseline["tail"]) or slower >= 1.2 else "ticket",
            runner_up="slow_replica" if alive.any() else "capacity_lost",
            evidence=(
                Row("gpu_xid", unit="GPUs with a fault", now=float(len(hit)), note=what),
                Row("gpu_ecc", unit="uncorrectable errors in an hour", now=ecc, before=0.0),
                Row(
                    "gpu_sm_clock_hz",
                    unit="GPUs that report",
                    now=float(nansum(_last(gpus))) if gpus.size else None,
                    before=float(np.nansum(np.nanmax(np.where(np.isnan(gpus), 0, gpus), axis=1)))
                    if gpus.size
                    else None,
                ),
                Row("inter_token_latency_seconds", "itl", "s per step (mean)"),
                Row("requests_running", "running", "requests"),
            ),
            ruled_out=(
                RuledOut("software Xid", "13, 31, 43, 45 are of the application", "not among them"),
                RuledOut("old code", "the code changed while it was watched", "it was another one before"),
                RuledOut(
                    "telemetry_fault",
                    "the exporter answers and other GPUs report",
                    f"{number(float(mean(window.value('gpus', 4)[case.peers].ravel())) if len(case.peers) else 0.0)} a peer",
                ),
                RuledOut("slow_replica", "clocks without an error", "an error is there"),
            ),
            now=[
                f"Drain {names(case.replicas)} and cordon its host: requests there may fail or come out wrong",
                "Keep nvidia-smi -q and dmesg of the host, then reset the GPU or reboot",
            ],
            tomorrow=[
                "Replace the GPU if it comes back (row remapping failure, Xid 79 after a reboot)",
                "Export DCGM_FI_DEV_XID_ERRORS and the ECC counters on every host",
            ],
            detail={
                "chain": [
                    {"at": t, "what": w, "value": r}
                    for r, (w, t) in sorted(said.items(), key=lambda p: p[1][1])
                ],
                "harm": {"replicas": len(hit)},
            },
        )


def _name(code: int) -> str:
    xid = int(DRAIN[code - 1])
    return f"{xid} ({MEANS[xid]})"


def _latest(window: Window, name: str) -> F:
    """The newest known value within two minutes; NaN where none."""
    return _last(window.value(name, 8))


def _last(x: F) -> F:
    known = ~np.isnan(x)
    if not x.shape[1]:
        return np.full(len(x), np.nan)
    at = x.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    return np.where(known.any(axis=1), x[np.arange(len(x)), at], np.nan)


def _missing(window: Window) -> F:
    """How many GPUs of each replica stopped to report while others of the same host go on."""
    x = window.value("gpus", int(3600 // window.step))
    if x.shape[1] < 40:
        return np.zeros(len(x))
    recent, before = x[:, -GONE_CELLS:], x[:, :-GONE_CELLS]
    enough = (~np.isnan(recent)).sum(axis=1) >= 2
    usual = np.nanmax(np.where(np.isnan(before), 0.0, before), axis=1)
    # As many as usual in at least ten scrapes: a host whose count always wavered says nothing.
    steady = (before == usual[:, None]).sum(axis=1) >= 10
    most = np.nanmax(np.where(np.isnan(recent), 0.0, recent), axis=1)
    return np.where(enough & steady & (most > 0) & (most < usual), usual - most, 0.0)
