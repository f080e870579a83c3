"""Look at targets the way ``gustfront doctor`` does: a file, a URL, or all that a configuration names. Nothing is stored."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from collectors.discovery import Discovery
from collectors.doctor import UNKNOWN, examine, problem_json
from collectors.exposition import Limits
from collectors.prometheus_client_guard import PrometheusClient
from collectors.scrape import ACCEPT, AGENT
from collectors.scrape_access import FIXES
from core.classes import ClassRules
from core.config import hide_password, read_secret, section_argument
from core.config_models import Config, PrometheusSource, ScrapeSource, ScrapeTarget
from core.errors import ConfigError, InputError, SourceError
from core.records import Problem
from core.roles import Roles

Report = dict[str, Any]
TARGETS_AT_A_TIME = 16
_VERSIONED = ("vllm", "sglang")
"""Engines whose metrics do not hold their version but who answer ``GET /version``."""


def probe_file(path: Path, classes: ClassRules, roles: Roles) -> Report:
    """Examine a file of metrics text. InputError when it cannot be read."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror}", "check path and permissions"
        ) from None
    return examine(body, name=path.name, classes=classes, roles=roles)


def probe_url(url: str, classes: ClassRules, roles: Roles) -> Report:
    """Examine what one URL answers; a failure to answer is a problem in the report, not an exception.

    ConfigError where it is no URL.
    """
    section_argument(ScrapeTarget, {"url": url}, {"url": hide_password(url)})
    source = ScrapeSource.model_validate(
        {"name": "doctor", "targets": [url], "scheme": urlsplit(url).scheme or "http"}
    )
    return asyncio.run(_scrape_all([(source, source.url_of(url))], classes, roles))[0]


def probe_config(config: Config, classes: ClassRules, roles: Roles) -> list[Report]:
    """Examine every target of the configuration's scrape and Prometheus sources, in their order."""
    reports: list[Report] = []
    for entry in config.sources:
        if entry.scrape is not None:
            problems: list[Problem] = []
            discovery = Discovery(entry.scrape, problems.append)
            endpoints = asyncio.run(discovery.refresh())
            reports += asyncio.run(_scrape_all([(entry.scrape, e.url) for e in endpoints], classes, roles))
            if problems:
                reports.append(_failed(entry.name, problems))
        elif entry.prometheus is not None:
            reports += probe_prometheus(entry.prometheus, classes, roles)
    return reports


def probe_prometheus(source: PrometheusSource, classes: ClassRules, roles: Roles) -> list[Report]:
    """Examine each target of a Prometheus-compatible server, from the newest value of each of its series."""
    try:
        with PrometheusClient(source) as client:
            rows = client.query(source.selector, time.time())
    except SourceError as error:
        problem = Problem(time.time(), error.source, error.kind, source.url, error.problem, error.fix)
        return [_failed(source.url, [problem])]
    bodies: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        labels = {k: v for k, v in row["metric"].items() if k not in source.drop_labels}
        where = (labels.pop("job", ""), labels.pop("instance", ""))
        name = labels.pop("__name__", "")
        if name and name != "up":
            bodies.setdefault(where, []).append(_line(name, labels, str(row["value"][1])))
    if not bodies:
        fix = "widen the selector, or look whether the server scrapes anything"
        problem = Problem(time.time(), source.url, "no_series", source.selector, "no series match now", fix)
        return [_failed(source.url, [problem])]
    reports = []
    for (job, instance), lines in sorted(bodies.items()):
        report = examine("\n".join(lines) + "\n", name=instance or job, classes=classes, roles=roles)
        report["job"] = job
        reports.append(report)
    return reports


def _line(name: str, labels: Mapping[str, str], value: str) -> str:
    """One series as exposition text; JSON escapes a label value as that format does."""
    inner = ",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in sorted(labels.items()))
    return f"{name}{{{inner}}} {value}"


async def _scrape_all(
    targets: list[tuple[ScrapeSource, str]], classes: ClassRules, roles: Roles
) -> list[Report]:
    gate = asyncio.Semaphore(TARGETS_AT_A_TIME)
    async with aiohttp.ClientSession(headers={"Accept": ACCEPT, "User-Agent": AGENT}) as session:

        async def one(source: ScrapeSource, url: str) -> Report:
            async with gate:
                return await _scrape(session, source, url, classes, roles)

        return list(await asyncio.gather(*(one(*target) for target in targets)))


async def _scrape(
    session: aiohttp.ClientSession, source: ScrapeSource, url: str, classes: ClassRules, roles: Roles
) -> Report:
    headers = {}
    if source.token_file:
        try:
            headers["Authorization"] = f"Bearer {read_secret(source.token_file)}"
        except ConfigError as error:
            return _refused(url, "no_secret", f"{error.path}: {error.problem}", error.fix)
    wait = aiohttp.ClientTimeout(total=source.timeout)
    verify = not source.insecure
    try:
        async with session.get(
            url, headers=headers, timeout=wait, ssl=verify, allow_redirects=False
        ) as answer:
            body = await answer.content.read(source.max_bytes + 1)
            while len(body) <= source.max_bytes and (more := await answer.content.read(1 << 20)):
                body += more
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        kind, what = _why(error, source)
        return _refused(url, kind, what, FIXES[kind])
    if len(body) > source.max_bytes:
        fix = "drop families at the engine, or raise max_bytes"
        return _refused(url, "too_large", f"more than {source.max_bytes:,} bytes", fix)
    if status != 200:
        fix = "check path and token; some engines export metrics only with a flag (docs/engines.md)"
        return _refused(url, "http_error", f"answered HTTP {status}", fix)
    limits = Limits(max_series=source.max_series, max_bytes=source.max_bytes)
    report = examine(body, name=url, classes=classes, roles=roles, limits=limits)
    if not report["version"] and report["engine"] in _VERSIONED:
        report["version"] = await _version(session, url, headers, verify)
    return report


async def _version(session: aiohttp.ClientSession, url: str, headers: dict[str, str], verify: bool) -> str:
    """What ``GET /version`` of the same server says; empty where it does not say."""
    parts = urlsplit(url)
    where = urlunsplit((parts.scheme, parts.netloc, "/version", "", ""))
    try:
        async with session.get(
            where, headers=headers, timeout=aiohttp.ClientTimeout(total=3), ssl=verify
        ) as answer:
            data = json.loads((await answer.content.read(4096)).decode())
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return ""
    return str(data.get("version") or "")[:100] if isinstance(data, dict) else ""


def _why(error: Exception, source: ScrapeSource) -> tuple[str, str]:
    """The kind of a failed scrape, as the collector names it, and what happened in one plain line."""
    if isinstance(error, TimeoutError):
        return "timeout", f"no answer within {source.timeout:g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", f"the host name {error.host} is not known"
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls", f"no trusted connection: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error
        if isinstance(reason, ConnectionRefusedError):
            return "refused", "nothing listens there"
        number = reason.errno
        return "unreachable", os.strerror(number) if number and number > 0 else str(reason)
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return "reset", "closed the connection without an answer"
    text = " ".join(str(error).split())[:200]
    if "content-encoding" in text:
        return "bad_encoding", "the answer is not compressed as it says"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "truncated", "the answer ended before it was complete"
    if isinstance(error, aiohttp.ClientResponseError):
        return "bad_http", "the answer is not HTTP"
    return "unreachable", text or type(error).__name__


def _refused(url: str, kind: str, what: str, fix: str) -> Report:
    """A report of a target that gave nothing to examine."""
    return _failed(url, [Problem(time.time(), url, kind, url, what, fix)])


def _failed(name: str, problems: list[Problem]) -> Report:
    """A report of a target that could not be examined."""
    shown = [problem_json(p) for p in problems]
    return {
        "target": name, "components": [UNKNOWN], "engine": "", "version": "", "model": "", "role": "", "series": 0,
        "signals": {}, "missing": [], "ambiguous": [], "dropped": [], "unused": [], "problems": shown,
    }  # fmt: skip
