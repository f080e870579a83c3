"""Which series to ask a server for when the configuration does not say: those of the jobs that run something we know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectors.dictionary import Dictionary
from collectors.prometheus_client_guard import PrometheusClient, any_of
from core.config_models import PrometheusSource
from core.errors import SourceError

EVERYTHING: str = PrometheusSource.model_fields["selector"].default
QUERY_LENGTH = 3000
"""Characters of names in one question; proxies cut URLs at 8 KiB."""
REFUSALS = frozenset({"http_400", "http_404", "http_405", "http_422", "error_bad_data"})


def effective_selector(client: PrometheusClient, dictionary: Dictionary, start: float, end: float) -> str:
    """The configured selector; for the default one, the jobs that expose a family which alone names a component.

    A whole Prometheus holds node exporters and the like, a hundred times what is wanted. Where the server cannot list names, or
    no job is recognised, everything is asked for. SourceError when the server cannot be asked at all.
    """
    configured = client.cfg.selector
    if configured != EVERYTHING:
        return configured
    try:
        names = client.label_values("__name__", configured, start, end)
        telling = sorted(n for n in names if dictionary.detect([(n, {})]))
        jobs: set[str] = set()
        for batch in _batches(telling):
            jobs.update(client.label_values("job", "{" + any_of("__name__", batch) + "}", start, end))
    except SourceError as error:
        if error.kind in REFUSALS:
            return configured
        raise
    return "{" + any_of("job", sorted(jobs)) + "}" if jobs else configured


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    length = 0
    for name in names:
        if batch and length + len(name) > QUERY_LENGTH:
            yield batch
            batch, length = [], 0
        batch.append(name)
        length += len(name) + 1
    if batch:
        yield batch
