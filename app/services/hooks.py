"""What deploy pipelines and orchestrators send, as events: one function a sender, each pure. InputError says what is wrong.

Everything in a payload is from strangers: types are checked, texts are cut and cleaned, kinds are taken from a list. An event
keeps the sender's own id of it, so that the same thing sent twice is one event.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.delivery.message import clean
from core.errors import ConfigError, InputError
from core.records import Event
from core.times import parse_time

KINDS = (
    "deploy",
    "release",
    "rollback",
    "scale",
    "flag",
    "config",
    "maintenance",
    "restart",
    "alert",
    "note",
)
AHEAD_S = 86400.0
MOST = 200
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """Events of a payload; ``ignored`` says why there are none, where that is right."""

    events: tuple[Event, ...] = ()
    ignored: str = ""


@dataclass(frozen=True)
class Context:
    """What is known besides the payload: the time, the sender's delivery id, ``?pool=``, the pools of the fleet, headers."""

    now: float
    delivery: str = ""
    pool: str = ""
    pools: frozenset[str] = frozenset()
    headers: Mapping[str, str] = field(default_factory=dict)

    def place(self, *names: object) -> str:
        """The pool: the one named in the address, else the first of ``names`` that is a pool of the fleet."""
        if self.pool:
            return self.pool
        return next((n for n in names if isinstance(n, str) and n in self.pools), "")


def _map(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _text(value: object, limit: int = 300) -> str:
    return clean(value, limit) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _time(value: object, where: str, now: float) -> float:
    """Unix seconds of a number (milliseconds where it is that large) or text; ``now`` where there is none."""
    if value is None or value == "":
        return now
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(where, "is no time", "write ISO 8601 or Unix seconds")
    try:
        t = float(value) if not isinstance(value, str) else parse_time(value, where)
    except (ConfigError, OverflowError):
        raise InputError(where, f"is no time: {clean(value, 60)}", "write ISO 8601 or Unix seconds") from None
    if t > 1e11:
        t /= 1000.0
    if not math.isfinite(t) or not 0 < t < now + AHEAD_S:
        raise InputError(where, "lies outside what can be", "write the time at which it happened")
    return t


def _event(
    c: Context, kind: str, text: str, at: float, source: str, key: str = "", pool: str = "", **data: object
) -> Event:
    kept = {k: _text(v) for k, v in data.items() if _text(v)}
    if key:
        kept["delivery"] = key[:200]
    return Event(at, kind, clean(text, 500), _text(pool, 200), source=source, data=kept)


# --- our own form


def plain(body: object, c: Context, source: str = "api") -> Taken:
    """``{kind, text, pool, replica, at, id}``, a list of such, or ``{"events": [...]}``."""
    if isinstance(body, Mapping) and isinstance(body.get("events"), list):
        rows: Sequence[object] = body["events"]
    else:
        rows = body if isinstance(body, list) else [body]
    if len(rows) > MOST:
        raise InputError("events", f"are {len(rows)} at once", f"send at most {MOST}")
    out = []
    for i, row in enumerate(rows):
        where = f"events[{i}]" if len(rows) > 1 else "event"
        if not isinstance(row, Mapping):
            raise InputError(
                where, "is no object", 'send {"kind": "deploy", "text": "v1.4.2", "pool": "coder-a"}'
            )
        unknown = sorted(str(k) for k in row if k not in ("kind", "text", "pool", "replica", "at", "id"))
        if unknown:
            fix = "an event has kind, text, pool, replica, at, id"
            raise InputError(where, f"has an unknown field {clean(unknown[0], 60)}", fix)
        kind = row.get("kind", "note")
        if kind not in KINDS:
            raise InputError(f"{where}.kind", f"is not known: {clean(kind, 60)}", f"use {', '.join(KINDS)}")
        for name in ("text", "pool", "replica", "id"):
            if row.get(name) is not None and not isinstance(row[name], str | int | float):
                raise InputError(f"{where}.{name}", "is no text", "write a text")
        if not _text(row.get("text")) and kind == "note":
            raise InputError(f"{where}.text", "is missing", "say what happened")
        key = _text(row.get("id"), 200) or (f"{c.delivery}/{i}" if c.delivery else "")
        at = _time(row.get("at"), f"{where}.at", c.now)
        made = _event(c, kind, _text(row.get("text"), 500), at, source, key, _text(row.get("pool")) or c.pool)
        out.append(replace(made, replica=_text(row.get("replica"), 200)))
    return Taken(tuple(out), "" if out else "an empty list")


# --- GitHub


def github(body: object, c: Context) -> Taken:
    """deployment_status, release, and workflow_run of workflows that deploy; other events are acknowledged and left."""
    what = c.headers.get("x-github-event", "")
    if not what:
        raise InputError("X-GitHub-Event", "is missing", "send what GitHub sends, with its headers")
    b = _map(body)
    if not b:
        raise InputError("body", "is no object", "choose the content type application/json in GitHub")
    repo = _text(_map(b.get("repository")).get("full_name"))
    key = c.delivery
    if what == "deployment_status":
        status, deployment = _map(b.get("deployment_status")), _map(b.get("deployment"))
        state = _text(status.get("state"))
        if not state:
            raise InputError("deployment_status.state", "is missing", "send what GitHub sends")
        if state not in ("success", "failure", "error"):
            return Taken(ignored=f"deployment_status {state}")
        where = _text(deployment.get("environment"))
        sha = _text(deployment.get("sha"))[:7]
        pool = c.place(_map(deployment.get("payload")).get("pool"), where)
        at = _time(
            status.get("updated_at") or status.get("created_at"), "deployment_status.updated_at", c.now
        )
        kind, word = ("deploy", "deployed") if state == "success" else ("note", "failed to deploy")
        text = f"{repo} {sha} {word}" + (f" to {where}" if where else "")
        return Taken((_event(c, kind, text, at, "github", key, pool, revision=deployment.get("sha")),))
    if what == "release":
        release = _map(b.get("release"))
        if b.get("action") != "published":
            return Taken(ignored=f"release {_text(b.get('action')) or 'without action'}")
        at = _time(release.get("published_at"), "release.published_at", c.now)
        text = f"{repo} {_text(release.get('tag_name'))} released"
        return Taken((_event(c, "release", text, at, "github", key, c.place(), url=release.get("html_url")),))
    if what == "workflow_run":
        run = _map(b.get("workflow_run"))
        name = _text(run.get("name"))
        deploys = re.search(r"deploy|release|roll.?out", name, re.IGNORECASE) is not None
        if b.get("action") != "completed" or run.get("conclusion") != "success" or not deploys:
            return Taken(ignored=f"workflow_run {name or '(without name)'}")
        at = _time(run.get("updated_at"), "workflow_run.updated_at", c.now)
        text = f"{repo} {_text(run.get('head_sha'))[:7]}: {name}"
        return Taken((_event(c, "deploy", text, at, "github", key, c.place(), url=run.get("html_url")),))
    return Taken(ignored=clean(what, 60))


# --- Argo CD


def argocd(body: object, c: Context) -> Taken:
    """The Application itself (``{"app": {{toJson .app}}}`` in a template), or ``{app, phase, revision, at, pool}``."""
    b = _map(body)
    app = _map(b.get("app")) or (b if b.get("kind") == "Application" else {})
    if app:
        name = _text(_map(app.get("metadata")).get("name"))
        done = _map(_map(app.get("status")).get("operationState"))
        phase, revision = _text(done.get("phase")), _text(_map(done.get("syncResult")).get("revision"))
        when: object = done.get("finishedAt") or done.get("startedAt")
        pool: object = _map(_map(app.get("metadata")).get("labels")).get("pool")
    else:
        name, phase = _text(b.get("app")), _text(b.get("phase") or b.get("status"))
        revision, when, pool = _text(b.get("revision")), b.get("at"), b.get("pool")
    if not name or not phase:
        fix = 'send {"app": {{toJson .app}}}, or app, phase, revision, at as texts'
        raise InputError("app" if not name else "phase", "is missing", fix)
    if phase in ("Running", "Terminating", "OutOfSync"):
        return Taken(ignored=f"{name} {phase}")
    good = phase in ("Succeeded", "Synced", "Healthy")
    at = _time(when, "finishedAt", c.now)
    text = f"{name} {'synced' if good else 'failed to sync'}" + (f" to {revision[:7]}" if revision else "")
    key = c.delivery or (f"{name}/{revision}/{phase}/{at:.0f}" if when else "")
    place = _text(pool) or c.place(name)
    return Taken(
        (_event(c, "deploy" if good else "note", text, at, "argocd", key, place, revision=revision),)
    )


# --- Kubernetes

_REASONS = {
    "ScalingReplicaSet": "scale",
    "SuccessfulRescale": "scale",
    "Killing": "restart",
    "BackOff": "restart",
    "OOMKilling": "restart",
    "Started": "restart",
}
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "RayService", "InferenceService")


def kubernetes(body: object, c: Context) -> Taken:
    """Event objects (core/v1 and events.k8s.io), lists of them, workloads that were rolled out, kubewatch's messages."""
    b = _map(body)
    rows = b["items"] if isinstance(b.get("items"), list) else body if isinstance(body, list) else [b]
    if len(rows) > MOST:
        raise InputError("items", f"are {len(rows)} at once", f"send at most {MOST}")
    out, ignored = [], ""
    for row in rows:
        if isinstance(row, Mapping) and isinstance(row.get("object"), Mapping):
            row = row["object"]  # as a watch sends it
        one = _kubernetes(_map(row), c)
        if isinstance(one, Event):
            out.append(one)
        else:
            ignored = one
    return Taken(tuple(out), "" if out else ignored or "an empty list")


def _kubernetes(row: Json, c: Context) -> Event | str:
    meta = _map(row.get("metadata"))
    key = "/".join(
        _text(v) for v in (meta.get("uid"), meta.get("generation") or meta.get("resourceVersion")) if v
    )
    labels = _map(meta.get("labels"))
    if "eventmeta" in row:
        about = _map(row["eventmeta"])
        name, reason = _text(about.get("name")), _text(about.get("reason"))
        if not name:
            raise InputError("eventmeta.name", "is missing", "send what kubewatch sends")
        at = _time(row.get("time"), "time", c.now)
        kind = "deploy" if _text(about.get("kind")).lower() in {w.lower() for w in WORKLOADS} else "note"
        short = name.rpartition("/")[2]
        return _event(c, kind, f"{name} {reason.lower()}", at, "kubernetes", c.delivery, c.place(short))
    about = _map(row.get("involvedObject")) or _map(row.get("regarding"))
    if about:
        name, reason = _text(about.get("name")), _text(row.get("reason"))
        said = _text(row.get("message") or row.get("note"), 300)
        when = next(
            (
                row[k]
                for k in ("lastTimestamp", "eventTime", "deprecatedLastTimestamp", "firstTimestamp")
                if row.get(k)
            ),
            meta.get("creationTimestamp"),
        )
        at = _time(when, "lastTimestamp", c.now)
        again = _text(row.get("count") or row.get("deprecatedCount"))
        text = f"{_text(about.get('kind'))} {name}: {reason}" + (f" ({said})" if said else "")
        kind = _REASONS.get(reason, "note")
        return _event(
            c,
            kind,
            text,
            at,
            "kubernetes",
            f"{key}/{again}" if key else c.delivery,
            c.place(name, labels.get("pool")),
        )
    what = _text(row.get("kind"))
    if what in WORKLOADS:
        return _rollout(row, what, meta, labels, key, c)
    if not what:
        fix = "send Event or workload objects, a list of them, or what kubewatch sends"
        raise InputError("body", "is no Kubernetes object", fix)
    return f"{what}"


def _rollout(row: Json, what: str, meta: Json, labels: Json, key: str, c: Context) -> Event | str:
    name, status = _text(meta.get("name")), _map(row.get("status"))
    conditions = status.get("conditions")
    done = next(
        (
            x
            for x in (conditions if isinstance(conditions, list) else ())
            if isinstance(x, Mapping) and x.get("reason") in ("NewReplicaSetAvailable", "Ready", "Available")
        ),
        None,
    )
    behind = status.get("updatedReplicas") != status.get("replicas")
    if done is None and behind:
        return f"{what} {name} is still being rolled out"
    at = _time(
        _map(done).get("lastUpdateTime") or _map(done).get("lastTransitionTime"), "lastUpdateTime", c.now
    )
    spec = _map(_map(_map(row.get("spec")).get("template")).get("spec"))
    containers = spec.get("containers")
    first = _map(containers[0]) if isinstance(containers, list) and containers else {}
    image = _text(first.get("image"))
    text = f"{name} rolled out" + (f": {image}" if image else "")
    pool = _text(labels.get("pool")) or c.place(name, labels.get("app"))
    return _event(c, "deploy", text, at, "kubernetes", key or c.delivery, pool, image=image)


# --- Alertmanager


def alertmanager(body: object, c: Context) -> Taken:
    """Alerts of others that begin to fire become events of kind ``alert``; our own are left out."""
    alerts = _map(body).get("alerts")
    if not isinstance(alerts, list):
        raise InputError("alerts", "is missing", "send what a webhook receiver of Alertmanager gets")
    out = []
    for i, raw in enumerate(alerts[:MOST]):
        alert = _map(raw)
        labels, notes = _map(alert.get("labels")), _map(alert.get("annotations"))
        name = _text(labels.get("alertname"), 100)
        if not name:
            raise InputError(f"alerts[{i}].labels.alertname", "is missing", "send what Alertmanager sends")
        if alert.get("status") == "resolved" or name.startswith("Gustfront"):
            continue
        at = _time(alert.get("startsAt"), f"alerts[{i}].startsAt", c.now)
        said = _text(notes.get("summary") or notes.get("description"), 300)
        key = f"{_text(alert.get('fingerprint')) or name}/{at:.3f}"
        pool = _text(labels.get("pool")) or c.place(labels.get("job"), labels.get("service"))
        text = f"{name}: {said}" if said else name
        out.append(_event(c, "alert", text, at, "alertmanager", key, pool, severity=labels.get("severity")))
    return Taken(tuple(out), "" if out else "nothing that begins to fire")


SENDERS: Mapping[str, Callable[[object, Context], Taken]] = {
    "argocd": argocd,
    "github": github,
    "kubernetes": kubernetes,
    "generic": lambda body, c: plain(body, c, "webhook"),
    "alertmanager": alertmanager,
}
