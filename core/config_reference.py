"""The configuration's reference as Markdown, made from the models: a key, its default and what it means cannot drift apart."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.config_models import Config
from core.times import format_duration


def reference() -> str:
    """One table a section, in the order of the file; ends with a newline."""
    blocks: list[str] = []
    for path, model in _sections(Config, ""):
        title = f"`{path}`" if path else "Top level"
        note = _first_line(model)
        rows = [
            f"| `{_key(name, field)}` | {_default(name, field)} | {_meaning(field)} |"
            for name, field in model.model_fields.items()
        ]
        blocks.append(
            "\n".join([f"## {title}", "", note, "", "| key | default | meaning |", "|---|---|---|", *rows])
        )
    return "\n\n".join(blocks) + "\n"


def _sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The model and all models below it, each with its dotted path; ``[]`` marks list entries."""
    yield path, model
    for name, field in model.model_fields.items():
        for inner, many in _models(field.annotation):
            below = f"{path}.{_key(name, field)}" if path else _key(name, field)
            yield from _sections(inner, f"{below}[]" if many else below)


def _models(annotation: Any, many: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    """Models named in a type, and whether they stand in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, many
        return
    origin = typing.get_origin(annotation)
    if origin in (list, typing.Union, types.UnionType, typing.Annotated):
        for part in typing.get_args(annotation):
            yield from _models(part, many or origin is list)


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", [], {}):
        return "–"
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and name.endswith(("_percent", "_share")):
        return f"`{value:g}`"
    if isinstance(value, float):
        return f"`{format_duration(value)}`" if value else "–"
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{value}`"


def _first_line(model: type[BaseModel]) -> str:
    text = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    return text.replace("``", "`")
