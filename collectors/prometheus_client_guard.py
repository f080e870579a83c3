"""The one module that knows prometheus-api-client; everybody else talks to :class:`PrometheusClient`.

What the library leaves to its callers is settled here: every request has a time limit, nothing is retried behind our
backs, times are explicit and UTC, label values are escaped, warnings of the server reach the caller, errors have a kind.
Raw samples are asked for as instant queries over a range selector; ``query_range`` would fill gaps for five minutes and make a
dead target look frozen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from collectors.prometheus_http import GuardedSession, Identity
from core.config_models import PrometheusSource, SourceConfig
from core.errors import SourceError

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def matcher(label: str, op: str, value: str) -> str:
    """One PromQL label matcher with its value escaped: ``matcher("a", "=", 'x"y')`` is ``a="x\\"y"``."""
    return f'{label}{op}"{value.translate(_ESCAPES)}"'


def any_of(label: str, values: Sequence[str]) -> str:
    """A matcher for a label that has one of the values, taken literally."""
    literal = "|".join("".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in v) for v in values)
    return matcher(label, "=~", literal)


@dataclass(frozen=True)
class RawSeries:
    """One series as the server sent it: ``values`` are ``[unix_seconds, "text"]``, ``histograms`` ``[unix_seconds, {...}]``."""

    labels: Mapping[str, str]
    values: Sequence[Sequence[Any]]
    histograms: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True)
class RawAnswer:
    """Series of one range query, what the server warned about, and how many entries could not be read."""

    series: list[RawSeries]
    warnings: list[str] = field(default_factory=list)
    malformed: int = 0

    @property
    def samples(self) -> int:
        """Number of samples, native histograms counted as one each."""
        return sum(len(s.values) + len(s.histograms) for s in self.series)


class PrometheusClient:
    """One Prometheus-compatible server, for use by one thread at a time. Close it, or use it as a context manager.

    Every method raises SourceError with a ``kind``: ``timeout``, ``refused``, ``dns``, ``tls``, ``truncated``, ``too_large``,
    ``redirect``, ``bad_url``, ``no_secret``, ``http_<status>``, ``error_<type>``, ``bad_json``, ``client``.
    """

    def __init__(self, source: PrometheusSource | SourceConfig, name: str = "") -> None:
        self.cfg = source_settings(source)
        self.name = name or source_name(source)
        self._session = GuardedSession(self.name, self.cfg)
        # No retries below: whether and when something is worth another try is the caller's decision.
        retry = Retry(total=0, read=False)
        self._connect = PrometheusConnect(
            url=self.cfg.url,
            session=self._session,
            retry=retry,
            timeout=self.cfg.timeout,
            auth=Identity(self.name, self.cfg),
        )

    def __enter__(self) -> PrometheusClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connect.close()

    @property
    def skew(self) -> float | None:
        """The server's clock minus ours in seconds, to about a second; None before the first answer with a date."""
        return self._session.skew

    def query(self, promql: str, at: float) -> list[dict[str, Any]]:
        """An instant query at ``at`` (Unix seconds): the vector's entries ``{"metric": {...}, "value": [t, "v"]}``."""
        result = self._ask(promql, at)
        return [row for row in result if isinstance(row, dict) and isinstance(row.get("metric"), dict)]

    def samples(self, selector: str, start: float, end: float) -> RawAnswer:
        """All raw samples of ``selector`` with ``start <= t < end`` (Unix seconds, millisecond resolution).

        Servers differ in whether the left edge of a range belongs to it; what lies before ``start`` is for the caller to drop
        (:func:`collectors.prometheus_series.decode` does). Stale markers never come over this interface.
        """
        low, high = round(start * 1000), round(end * 1000)
        if high <= low:
            return RawAnswer([])
        span = high - low
        text = f"{span // 1000}s" if span % 1000 == 0 else f"{span}ms"
        self._session.notes.clear()
        result = self._ask(f"{selector}[{text}]", (high - 1) / 1000)
        series: list[RawSeries] = []
        malformed = 0
        for row in result:
            one = _raw_series(row)
            if one is None:
                malformed += 1
            else:
                series.append(one)
        return RawAnswer(series, list(self._session.notes), malformed)

    def label_values(self, label: str, selector: str, start: float, end: float) -> list[str]:
        """Values of one label among the series of ``selector`` seen between ``start`` and ``end``."""
        params = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        values = self._call(self._connect.get_label_values, label, params=params)
        if not isinstance(values, list):
            raise SourceError(self.name, "bad_json", "answered label values of another kind than a list")
        return [str(v) for v in values]

    def check(self) -> None:
        """Ask for a constant: raises the SourceError that says why queries do not work.

        The library's own check asks for ``/``, which is 404 behind a path such as ``/prometheus`` and 200 on any web server.
        """
        self._ask("vector(1)", time.time())

    def version(self) -> str:
        """The server's version, empty where it does not say (VictoriaMetrics answers with an empty object)."""
        try:
            reply = self._session.request(
                "GET", f"{self.cfg.url}/api/v1/status/buildinfo", auth=self._connect.auth
            ).json()
        except SourceError:
            return ""
        data = reply["data"]
        return str(data.get("version") or "") if isinstance(data, dict) else ""

    def _ask(self, promql: str, at: float) -> list[Any]:
        params = {"time": f"{at:.3f}", "timeout": f"{max(1, math.ceil(self.cfg.timeout))}s"}
        result = self._call(self._connect.custom_query, promql, params=params)
        if not isinstance(result, list):
            raise SourceError(self.name, "bad_json", f"answered a result of another kind: {str(result)[:80]}")
        return result

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except SourceError:
            raise
        except (PrometheusApiClientException, KeyError, TypeError, ValueError, AttributeError) as error:
            # A reply that the library trips over, such as data without a result.
            raise SourceError(
                self.name,
                "bad_json",
                f"answered something unusable ({type(error).__name__}: {str(error)[:200]})",
            ) from None


def _raw_series(row: Any) -> RawSeries | None:
    """One entry of a matrix, None where it is not one."""
    if not isinstance(row, dict):
        return None
    labels, values, histograms = row.get("metric"), row.get("values", ()), row.get("histograms", ())
    if (
        not isinstance(labels, dict)
        or not isinstance(values, list | tuple)
        or not isinstance(histograms, list | tuple)
    ):
        return None
    if not (values or histograms) or not all(isinstance(v, str) for v in labels.values()):
        return None
    return RawSeries(labels, values, histograms)


def source_settings(source: PrometheusSource | SourceConfig) -> PrometheusSource:
    """The settings of a ``prometheus`` source, given as itself or as an entry of ``sources``."""
    if isinstance(source, SourceConfig):
        if source.prometheus is None:
            raise SourceError(source.name, "not_prometheus", "is not a prometheus source")
        return source.prometheus
    return source


def source_name(source: PrometheusSource | SourceConfig) -> str:
    """The name of a source on screens and in cursors."""
    if isinstance(source, SourceConfig):
        return source.name
    return source.name or f"prometheus:{source.url.split('://', 1)[1]}"
