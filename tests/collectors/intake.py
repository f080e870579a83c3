"""A real store in a file, and a configuration like that of the labelled histories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.classes import ClassRules
from core.config import Config, load_config
from core.roles import Roles

CONFIG = """
classes:
  - {name: coding-agent, match: ['workload="coding-agent"', 'pool="coder-a"']}
  - {name: chat, match: ['workload="chat"', 'pool="chat-a"']}
slos:
  - {name: chat-ttft, class: chat, signal: ttft_seconds, threshold: 1.1s, objective_percent: 99}
"""


def configured(folder: Path, extra: str = "") -> tuple[Config, ClassRules, Roles]:
    """The configuration above plus ``extra`` YAML, its class rules and roles."""
    path = folder / "gustfront.yaml"
    path.write_text(CONFIG + extra)
    config = load_config(path)
    return config, ClassRules.from_config(config.classes), Roles.from_config(config.roles)


def write_lines(path: Path, records: Iterable[Mapping[str, Any] | str | bytes]) -> Path:
    """One line a record; strings and bytes as they are."""
    with path.open("ab") as file:
        for record in records:
            raw = (
                record
                if isinstance(record, bytes)
                else record.encode()
                if isinstance(record, str)
                else json.dumps(record).encode()
            )
            file.write(raw + b"\n")
    return path
