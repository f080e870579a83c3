"""Which targets a scrape source has now: a static list, Prometheus ``file_sd`` files (JSON or YAML), ``http_sd`` URLs.

Files are looked at again when their size or time changes, URLs once a minute. A file or URL that cannot be
read keeps its last good list and costs the others nothing. Of the labels that begin with ``__`` only
``__scheme__`` and ``__metrics_path__`` mean something.
"""

from __future__ import annotations

import asyncio
import glob
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from core.config_models import ScrapeSource
from core.records import Problem

FILE_LIMIT = 16 * 2**20
TARGETS_LIMIT = 100_000
HTTP_SD_EVERY = 60.0

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address to scrape. ``address`` is how it is called (``host:port``, or the URL where that says more)."""

    url: str
    address: str
    labels: Pairs = field(default=())
    key: str = field(init=False, compare=False, repr=False)
    """Identity for scheduling."""

    def __post_init__(self) -> None:
        key = self.url + "\0" + "\0".join(f"{k}={v}" for k, v in self.labels)
        object.__setattr__(self, "key", key)


def endpoint(source: ScrapeSource, address: str, labels: Mapping[str, str]) -> Endpoint:
    """An endpoint of an address as written, with the source's defaults filled in.

    ``instance`` is the address without scheme and path unless a label says otherwise; ``job`` the source's name.
    Raises ValueError for an address that is no HTTP address.
    """
    own = {**source.labels, **labels}
    scheme, path = own.get("__scheme__", source.scheme), own.get("__metrics_path__", source.path)
    if scheme not in ("http", "https"):
        raise ValueError(f"__scheme__ is {scheme!r}, not http or https")
    if not path.startswith("/"):
        raise ValueError(f"__metrics_path__ is {path!r}, which does not begin with a slash")
    given = address if "://" in address else f"{scheme}://{address}"
    if any(ord(c) <= 32 or ord(c) == 127 for c in given + path):
        raise ValueError("it contains spaces or control characters")
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is no http address")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong into an address")
    _ = parts.port  # raises ValueError when out of range
    bare = parts.path in ("", "/") and not parts.query
    url = f"{parts.scheme}://{parts.netloc}{path}" if bare else given.split("#", 1)[0]
    plain = bare and path == "/metrics"
    kept = {"job": source.name or "scrape", "instance": parts.netloc, **own}
    return Endpoint(
        url,
        parts.netloc if plain else url,
        tuple(sorted((k, v) for k, v in kept.items() if v and not k.startswith("__"))),
    )


def read_groups(text: bytes, name: str) -> list[tuple[str, dict[str, str]]]:
    """Addresses with labels of a file_sd or http_sd document. Raises ValueError that says what is wrong."""
    if len(text) > FILE_LIMIT:
        raise ValueError(f"it is larger than {FILE_LIMIT} bytes")
    try:
        if name.endswith((".yml", ".yaml")):
            data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        else:
            data = orjson.loads(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())[:200]}") from None
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if data is None:
        return []
    if not isinstance(data, list):
        raise ValueError("it is no list of target groups")
    out: list[tuple[str, dict[str, str]]] = []
    for number, group in enumerate(data):
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            raise ValueError(f"group {number} has no list 'targets'")
        labels = group.get("labels") or {}
        if not isinstance(labels, dict):
            raise ValueError(f"group {number}: 'labels' is no mapping")
        pairs = {str(k): str(v) for k, v in labels.items()}
        out += [(_address(t, number), pairs) for t in group["targets"]]
        if len(out) > TARGETS_LIMIT:
            raise ValueError(f"it has more than {TARGETS_LIMIT} targets")
    return out


def _address(value: Any, group: int) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"group {group}: target {value!r} is no address")
    return value


class Discovery:
    """The current endpoints of one source. ``refresh`` is cheap when nothing changed."""

    def __init__(self, source: ScrapeSource, problem: Callable[[Problem], None]) -> None:
        self.source = source
        self._problem = problem
        self._files: dict[str, tuple[tuple[int, int, int], list[Endpoint]]] = {}
        self._http: dict[str, list[Endpoint]] = {}
        self._http_due: dict[str, float] = {}
        self._parts: list[list[Endpoint]] = []
        self._now: list[Endpoint] = []
        self._static = self._endpoints(((t.url, t.labels) for t in source.targets), "targets")

    async def refresh(self) -> list[Endpoint]:
        """All endpoints now, without duplicates, in a stable order; the same list object while nothing changes."""
        parts = [self._static]
        if self.source.file_sd:
            parts += await asyncio.to_thread(self._read_files)
        for url in self.source.http_sd:
            now = time.monotonic()
            if now >= self._http_due.get(url, 0.0):
                self._http_due[url] = now + max(HTTP_SD_EVERY, self.source.every)
                await self._ask(url)
            parts.append(self._http.get(url, []))
        if [id(p) for p in parts] != [id(p) for p in self._parts]:
            self._parts = parts
            self._now = list({e.key: e for part in parts for e in part}.values())
        return self._now

    def _endpoints(self, pairs: Iterable[tuple[str, Mapping[str, str]]], where: str) -> list[Endpoint]:
        out: list[Endpoint] = []
        for address, labels in pairs:
            try:
                out.append(endpoint(self.source, address, labels))
            except ValueError as error:
                self._tell(
                    "sd_bad_target",
                    f"{where}: {address[:200]}",
                    f"The address cannot be scraped: {error}.",
                    "Write host:port.",
                )
        return out

    def _read_files(self) -> list[list[Endpoint]]:
        paths: dict[str, None] = {}
        for pattern in self.source.file_sd:
            matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - may be absolute
            if not matches and not any(c in pattern for c in "*?["):
                self._tell(
                    "sd_missing", pattern, "The file_sd file does not exist.", "Create it or correct file_sd."
                )
                matches = [pattern] if pattern in self._files else []
            paths.update(dict.fromkeys(matches))
        for gone in self._files.keys() - paths.keys():
            del self._files[gone]
        for path in paths:
            self._read_file(path)
        return [self._files[p][1] for p in paths if p in self._files]

    def _read_file(self, path: str) -> None:
        try:
            stat = Path(path).stat()
            version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            known = self._files.get(path)
            if known is not None and known[0] == version:
                return
            if stat.st_size > FILE_LIMIT:
                raise ValueError(f"it is larger than {FILE_LIMIT} bytes")
            endpoints = self._endpoints(read_groups(Path(path).read_bytes(), path), path)
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._tell(
                "sd_unreadable",
                path,
                f"The file_sd file cannot be used: {text}.",
                "Its last good content stays in force.",
            )
            return
        self._files[path] = (version, endpoints)

    async def _ask(self, url: str) -> None:
        import aiohttp  # costs a third of a second, and only this needs it

        headers = {
            "Accept": "application/json",
            "X-Prometheus-Refresh-Interval-Seconds": f"{HTTP_SD_EVERY:g}",
        }
        timeout = aiohttp.ClientTimeout(total=self.source.timeout)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(url, ssl=not self.source.insecure) as answer,
            ):
                if answer.status != 200:
                    raise ValueError(f"it answered HTTP {answer.status}")
                text = await answer.content.read(FILE_LIMIT + 1)
                while len(text) <= FILE_LIMIT and (more := await answer.content.read(FILE_LIMIT)):
                    text += more
            self._http[url] = self._endpoints(read_groups(text, "answer.json"), url)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            reason = str(error) or type(error).__name__
            self._tell(
                "sd_unreadable",
                url,
                f"The http_sd URL gave no targets: {reason[:300]}.",
                "Its last good list stays in force.",
            )

    def _tell(self, code: str, subject: str, message: str, fix: str) -> None:
        self._problem(Problem(time.time(), self.source.name or "scrape", code, subject, message, fix))
