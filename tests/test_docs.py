"""Docs cannot drift: every command, setting, signal, engine and detector is described, and what is generated is current."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from app.cli import cli
from core.config_reference import reference
from core.signals import SIGNALS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def commands() -> dict[str, Callable[..., object]]:
    """Every command by the words that call it: ``incidents``, ``incidents accept``."""
    found = {str(c.name): c.callback for c in cli.registered_commands}
    for group in cli.registered_groups:
        app = group.typer_instance
        assert app is not None
        if app.registered_callback is not None and app.info.invoke_without_command is True:
            found[str(group.name)] = app.registered_callback.callback
        found |= {f"{group.name} {c.name}": c.callback for c in app.registered_commands}
    return {name: callback for name, callback in found.items() if callback is not None}


def test_every_command_stands_in_the_readme_and_nothing_else_does() -> None:
    table = re.findall(r"^\| `gustfront ([\w -]+)` \|", (ROOT / "README.md").read_text(), re.M)
    assert sorted(table) == sorted(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_a_help_text(name: str) -> None:
    assert (commands()[name].__doc__ or "").strip()


def test_the_configuration_reference_is_the_one_made_from_the_models() -> None:
    assert reference() in (DOCS / "configuration.md").read_text()


@pytest.mark.parametrize("signal", sorted(SIGNALS))
def test_every_signal_is_documented(signal: str) -> None:
    assert f"`{signal}`" in (DOCS / "signals.md").read_text()


def test_every_engine_dictionary_is_documented() -> None:
    text = (DOCS / "engines.md").read_text()
    names = [
        yaml.safe_load(p.read_text())["component"] for p in (ROOT / "collectors" / "engines").glob("*.yaml")
    ]
    assert len(names) == 23
    for name in names:
        assert f"`{name}`" in text, name


def test_every_detector_has_a_page_with_rule_signals_and_look_alikes() -> None:
    from detectors.registry import detectors

    for one in detectors():
        kind = one.kind
        page = (DOCS / "detectors" / f"{kind}.md").read_text().lower()
        for word in ("what it says", "rule", "signals", "not this"):
            assert word in page, f"{kind}: {word}"


def test_every_endpoint_stands_in_the_api_document_and_nothing_else_does() -> None:
    from app.api import endpoints
    from app.openapi_intake import paths

    rows = re.findall(
        r"^\| `(GET|POST|DELETE|PUT|PATCH) (/api/v1/[^`]+)` \|", (DOCS / "api.md").read_text(), re.M
    )
    sent = {(method.upper(), path) for path, item in paths().items() for method in item}
    assert sorted(rows) == sorted({(e.method, e.path) for e in endpoints()} | sent)


def test_every_scope_and_every_tool_is_documented() -> None:
    from app.mcp_tools import Toolbox
    from app.services.people import LOCAL, SCOPES
    from core.config import Config
    from sql.store import Store

    def never() -> Store:
        raise AssertionError("nothing is opened for a list of names")

    scopes = re.findall(r"^\| `(\w+:\w+)` \|", (DOCS / "security.md").read_text(), re.M)
    assert sorted(scopes) == sorted(SCOPES)
    tools = Toolbox(Config.built_in(), never, lambda: (never(), LOCAL)).names
    assert re.findall(r"^\| `(\w+)` \|", (DOCS / "mcp.md").read_text(), re.M) == list(tools)


def test_links_between_documents_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:\s]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
