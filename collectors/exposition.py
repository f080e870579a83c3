"""Reading exposition text: Prometheus text format and OpenMetrics, from targets that are not trusted.

:func:`parse` reads a body from scratch. :class:`PrefixCache` remembers one target's lines: on later scrapes a line that did not
change costs a comparison, a line that did costs one ``float()``; only a line never seen before is parsed.

A bad line costs only itself and becomes a problem with its number and reason. Nothing here raises on the content of a body.
"""

from __future__ import annotations

from collectors.exposition_body import Exposition, Limits, Series, parse
from collectors.exposition_cache import ABSENT_SCRAPES, PrefixCache

__all__ = ["ABSENT_SCRAPES", "Exposition", "Limits", "PrefixCache", "Series", "parse"]
