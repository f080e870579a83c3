"""Which of several collectors a source belongs to: Prometheus's ``hashmod``, so that both divide a fleet alike.

The hash depends on the address alone: a target stays where it is while others come and go, and moves only with the number of
shards.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from core.config_models import SourceConfig
from core.errors import ConfigError

MOST_SHARDS = 1024


def hashmod(text: str, modulus: int) -> int:
    """The last eight bytes of the MD5 of ``text``, as a big-endian number, modulo ``modulus``: 0 to ``modulus`` - 1."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "big") % modulus


@dataclass(frozen=True, slots=True)
class Shard:
    """The ``number``-th (from 1) of ``of`` collectors; together they have each source once."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """A shard as given on the command line, ``3/8``. Raises ConfigError."""
        fix = f"give NUMBER/OF with 1 <= NUMBER <= OF <= {MOST_SHARDS}, such as 3/8"
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if match is None:
            raise ConfigError("--shard", "is no shard", fix, text)
        number, of = int(match[1]), int(match[2])
        if of > MOST_SHARDS:
            raise ConfigError("--shard", f"there are at most {MOST_SHARDS} shards", fix, text)
        if not 1 <= number <= of:
            raise ConfigError("--shard", f"of {of} shards there is no number {number}", fix, text)
        return cls(number, of)

    @property
    def name(self) -> str:
        """``3/8``; empty where one collector does everything."""
        return f"{self.number}/{self.of}" if self.of > 1 else ""

    def has(self, text: str) -> bool:
        """Whether what is called ``text`` belongs to this shard."""
        return self.of == 1 or hashmod(text, self.of) == self.number - 1

    def has_url(self, url: str) -> bool:
        """Whether a target does: by host and port, Prometheus's ``__address__``."""
        return self.of == 1 or self.has(urlsplit(url).netloc)

    def has_source(self, source: SourceConfig) -> bool:
        """Whether a Prometheus server or followed file does, by its name. Of a scrape source every shard has a part."""
        return source.scrape is not None or self.has(source.name)


ALL = Shard()
