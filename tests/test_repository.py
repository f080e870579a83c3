"""What the repository promises about itself: layers, SQL in one place, compose file, no traces of a machine."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "core": {"core"},
    "sql": {"core", "sql"},
    "collectors": {"core", "sql", "collectors"},
    "detectors": {"core", "sql", "detectors"},
    "fleet": {"core", "collectors", "fleet"},
    "app": {"core", "sql", "collectors", "detectors", "fleet", "app"},
}
LAYERS = {"core", "sql", "collectors", "detectors", "app", "fleet"}


def sources(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_imports_between_layers_point_one_way(layer: str) -> None:
    assert sources(layer)
    for path in sources(layer):
        assert imports(path) & LAYERS <= ALLOWED[layer], path


@pytest.mark.parametrize("layer", ["core", "sql", "collectors", "detectors", "fleet"])
def test_only_the_app_imports_streamlit(layer: str) -> None:
    for path in sources(layer):
        assert "streamlit" not in imports(path), path


def test_collectors_do_not_load_the_learning_library() -> None:
    for path in sources("collectors"):
        assert "sklearn" not in imports(path), path


STATEMENT = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE)\b", re.S
)


@pytest.mark.parametrize("layer", ["core", "collectors", "detectors", "fleet", "app"])
def test_sql_lives_only_in_the_sql_layer(layer: str) -> None:
    for path in sources(layer):
        assert "sqlalchemy" not in imports(path), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not STATEMENT.search(node.value), f"{path}:{node.lineno}"


def test_one_module_alone_imports_the_prometheus_client_library() -> None:
    users = [p.name for layer in ALLOWED for p in sources(layer) if "prometheus_api_client" in imports(p)]
    assert users == ["prometheus_client_guard.py"]


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: the list of tracked files is unknown")
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def test_no_tracked_file_is_large_or_names_a_registry_or_a_machine() -> None:
    # In two pieces each, so that this file names none of them either and is checked like every other.
    halves = [
        ("py", r"pi\.org"),
        ("python", "hosted"),
        ("registry", r"\.npmjs"),
        ("deb", r"\.debian\.org"),
        ("index", "-url"),
        (r"(?<![\w.])/wo", "rk/"),
        ("/tmp/ve", "nv"),
    ]
    forbidden = re.compile("|".join(first + second for first, second in halves))
    for path in tracked():
        assert path.stat().st_size < 1_000_000, path
        if path.suffix in {".py", ".yaml", ".yml", ".toml", ".txt", ".md", ".sh", ""}:
            text = path.read_text(errors="replace")
            assert not forbidden.search(text), path


def test_the_compose_file_names_the_six_services_and_only_real_commands() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {"app", "collector", "deliverer", "detector", "postgres", "prometheus"}
    volumes = set(compose["volumes"])
    from app.cli import cli

    commands = {c.name for c in cli.registered_commands}
    for name, service in services.items():
        assert "image" in service, name
        if service["image"].startswith("gustfront"):
            assert service["command"][0] == "gustfront"
            assert service["command"][1] in commands
            assert service["environment"]["GUSTFRONT_DATABASE"].startswith("postgresql+psycopg://")
        for mount in service.get("volumes", []):
            origin = mount.split(":")[0]
            assert origin in volumes or (ROOT / origin).exists(), mount
        for other, needs in (service.get("depends_on") or {}).items():
            assert other in services
            assert needs["condition"] != "service_healthy" or "healthcheck" in services[other]


def test_every_folder_that_the_image_copies_exists_and_holds_the_package() -> None:
    copied = re.findall(r"^COPY (\w+) \1$", (ROOT / "Dockerfile").read_text(), re.M)
    assert set(copied) == set(ALLOWED)


def test_constraints_pin_exact_versions_without_addresses() -> None:
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line), line
