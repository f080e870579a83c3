"""From what is wrong in a configuration to sentences with path, value and fix."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from core.config_models import Config
from core.errors import ConfigError

Path = Sequence[str | int]
# What stands under these keys can be a secret: say what is wrong with it, do not repeat it.
_SECRET = re.compile(r"token|password|secret|authorization|headers|database|key$", re.IGNORECASE)
_MAX_SHOWN = 80


class ConfigErrors(ConfigError):
    """Everything that is wrong in one file; ``problems`` holds one ConfigError each, ``path`` is the file."""

    def __init__(self, name: str, problems: Sequence[ConfigError]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(name, count)
        self.args = ("\n".join([f"{name}: {count}", *(f"  {problem}" for problem in problems)]),)


def format_path(path: Path) -> str:
    """``sources[0].prometheus.every``."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out or "configuration"


def from_pydantic(error: ValidationError, data: Any) -> list[ConfigError]:
    """One ConfigError for each problem; ``data`` is what stood in the file, for the value shown."""
    items = error.errors(include_url=False)
    return [_problem(i["type"], i["loc"], i["msg"], i.get("ctx", {}), data) for i in items]


def from_argument(
    error: ValidationError, options: Mapping[str, str], otherwise: str, data: Any
) -> ConfigError:
    """The first problem as one about an argument: its field's name in ``options``, or ``otherwise``."""
    item = error.errors(include_url=False)[0]
    context = item.get("ctx", {})
    loc = item["loc"]
    field = str(loc[0]) if loc else ""
    value = _shown(loc, data) if loc else data if isinstance(data, str) else None
    message = context["problem"] if item["type"] == "gustfront" else _small(item["msg"])
    return ConfigError(options.get(field, otherwise or field), message, context.get("fix", ""), value)


def _problem(
    type_: str, loc: tuple[str | int, ...], message: str, context: Mapping[str, Any], data: Any
) -> ConfigError:
    path = format_path(loc)
    value = _shown(loc, data)
    if type_ == "extra_forbidden":
        model = _model_at(loc[:-1])
        known = _keys(model) if model else ()
        near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
        fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return ConfigError(path, "unknown key", fix)
    if type_ == "missing":
        return ConfigError(path, "is missing", _help(loc))
    if type_ == "gustfront":
        return ConfigError(path, context["problem"], context.get("fix", ""), value)
    if type_ in ("model_type", "model_attributes_type", "dict_type"):
        message = "must be a mapping of keys to values"
    elif type_ == "list_type":
        message = "must be a list"
    else:
        message = _small(message)
    return ConfigError(path, message, _help(loc), value)


def _small(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(loc: Path, data: Any) -> Any:
    """The value at ``loc`` as it stood in the file; None where there is none, or it can be a secret, or it
    is a whole section.
    """
    if any(isinstance(part, str) and _SECRET.search(part) for part in loc):
        return None
    if loc and loc[0] == "receivers" and loc[-1] == "url":
        return None  # the address of an incoming webhook is its password
    for part in loc:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    if isinstance(data, (Mapping, list)) or data is None:
        return None
    if isinstance(data, str):
        data = re.sub(r"(//)[^/@\s]*@", r"\1***@", data)  # credentials in a URL
        return data if len(data) <= _MAX_SHOWN else data[:_MAX_SHOWN] + "…"
    return data


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _help(loc: Path) -> str:
    """The description of the field at ``loc``, as the fix."""
    model = _model_at(loc[:-1])
    if model is None or not loc:
        return ""
    for name, field in model.model_fields.items():
        if loc[-1] in (name, field.alias):
            return f"give {loc[-1]}: {field.description}" if field.description else ""
    return ""


def _model_at(loc: Path) -> type[BaseModel] | None:
    """The section that stands at a path, None where the path leads elsewhere."""
    here: Any = Config
    for part in loc:
        model = _model(here)
        if model is None or isinstance(part, int):
            here = next(iter(typing.get_args(_plain(here))), None)
            continue
        field = next((f for n, f in model.model_fields.items() if part in (n, f.alias)), None)
        here = field.annotation if field else None
    return _model(here)


def _plain(annotation: Any) -> Any:
    """Without ``Annotated`` and ``| None``."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _plain(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return next((_plain(a) for a in typing.get_args(annotation) if a is not type(None)), None)
    return annotation


def _model(annotation: Any) -> type[BaseModel] | None:
    plain = _plain(annotation)
    return plain if isinstance(plain, type) and issubclass(plain, BaseModel) else None


def cross_checks(data: Mapping[str, Any]) -> list[ConfigError]:
    """What one section cannot see: names given twice, objectives about unknown classes. Works on the raw
    data, so that these are
    reported together with everything else; malformed entries are passed over (they have their own
    problem).
    """
    classes = [c.get("name") for c in _entries(data, "classes")]
    out = [*_twice("classes", classes), *_twice("slos", [s.get("name") for s in _entries(data, "slos")])]
    known = [c for c in classes if isinstance(c, str)]
    for i, slo in enumerate(_entries(data, "slos")):
        name = slo.get("class")
        if known and isinstance(name, str) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}, or add the class"
            out.append(ConfigError(f"slos[{i}].class", "no such class", fix, name))
    out += _twice("sources", [_source_name(source) for source in _entries(data, "sources")])
    return out + _receivers(data)


def _receivers(data: Mapping[str, Any]) -> list[ConfigError]:
    """Receivers named twice; routes and teams that name one that is not there."""
    names = [r.get("name") for r in _entries(data, "receivers")]
    out = _twice("receivers", names)
    known = [n for n in names if isinstance(n, str)]
    for section, keys in (("routes", ("receivers", "escalate_to")), ("teams", ("contacts",))):
        if section == "teams" and not known:
            continue  # whom to tell is then written down, but nobody is told yet
        for i, entry in enumerate(_entries(data, section)):
            for key in keys:
                for name in _listed(entry.get(key)):
                    if name not in known:
                        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                        have = f"use one of {', '.join(known)}, or " if known else ""
                        fix = f"did you mean {near[0]}?" if near else f"{have}add it under receivers"
                        out.append(ConfigError(f"{section}[{i}].{key}", "no such receiver", fix, name))
    return out


def _listed(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _entries(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The entries of a list; anything that is not a mapping counts as an empty one, so that positions stay
    right.
    """
    items = data.get(key)
    return [item if isinstance(item, Mapping) else {} for item in items] if isinstance(items, list) else []


def _source_name(source: Mapping[str, Any]) -> str | None:
    """The name of a source as :attr:`SourceConfig.name` will make it, None where the entry is malformed."""
    for kind, spec in source.items():
        if isinstance(spec, Mapping):
            return spec.get("name") or ":".join(
                str(v) for v in (kind, spec.get("url") or spec.get("file")) if v
            )
    return None


def _twice(section: str, names: Iterable[Any]) -> list[ConfigError]:
    seen: Counter[str] = Counter()
    out = []
    for i, name in enumerate(names):
        if isinstance(name, str):
            seen[name] += 1
            if seen[name] == 2:
                out.append(
                    ConfigError(
                        f"{section}[{i}].name",
                        "the name is given twice",
                        "give each entry a name of its own",
                        name,
                    )
                )
    return out
