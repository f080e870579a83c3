from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import (
    Config,
    ConfigErrors,
    find_config,
    hide_password,
    load_config,
    parse_config,
    read_secret,
)
from core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
DAY = 86400.0


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GUSTFRONT_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def problems(text: str) -> dict[str, ConfigError]:
    """Everything wrong with a configuration, by path."""
    with pytest.raises(ConfigErrors) as error:
        parse_config(text)
    return {p.path: p for p in error.value.problems}


def test_without_any_file_the_built_in_configuration_is_used() -> None:
    config = load_config()
    assert config == Config.built_in()
    assert config.path is None
    assert config.database == "sqlite:///./gustfront.db"
    assert (config.sources, config.classes, config.slos) == ([], [], [])
    assert (config.retention.frames, config.retention.rollups_hour) == (14 * DAY, 400 * DAY)
    assert (config.detect.every, config.detect.lag, config.app.port) == (15.0, "auto", 8501)


def test_the_argument_wins_over_the_environment_and_that_over_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, name in enumerate(("gustfront.yaml", "env.yaml", "arg.yaml")):
        (tmp_path / name).write_text(f"app: {{port: {9000 + i}}}")
    assert load_config().app.port == 9000
    assert find_config() == Path("gustfront.yaml")
    monkeypatch.setenv("GUSTFRONT_CONFIG", str(tmp_path / "env.yaml"))
    assert load_config().app.port == 9001
    config = load_config(tmp_path / "arg.yaml")
    assert config.app.port == 9002
    assert config.path == tmp_path / "arg.yaml"


def test_a_named_file_that_does_not_exist_is_an_error_and_not_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="--config: no such file"):
        load_config("nowhere.yaml")
    monkeypatch.setenv("GUSTFRONT_CONFIG", "nowhere.yaml")
    with pytest.raises(ConfigError, match=r"\$GUSTFRONT_CONFIG"):
        load_config()


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "{}"])
def test_an_empty_file_gives_the_defaults(text: str) -> None:
    assert parse_config(text) == Config.built_in()


@pytest.mark.shared
def test_the_configuration_of_the_scenarios_loads_as_written(shared: Path, tmp_path: Path) -> None:
    text = (shared / "scenarios" / "gustfront.yaml").read_text()
    file = tmp_path / "c.yaml"
    file.write_text(text.replace("FILE", "/data/x.db").replace("PORT", "9099"))
    config = load_config(file)
    assert config.database == "sqlite:////data/x.db"
    prometheus = config.sources[0].prometheus
    assert prometheus is not None
    assert (prometheus.url, prometheus.every) == ("http://127.0.0.1:9099", 15.0)
    assert prometheus.selector == '{job=~"vllm|sglang|dcgm"}'
    assert config.roles.replica == ["instance"]
    assert config.roles.cluster == ["cluster"]
    assert config.class_names == ("coding-agent", "chat", "batch")
    assert [(s.class_, s.signal, s.threshold, s.objective_percent, s.window) for s in config.slos][1] == (
        "chat",
        "ttft_seconds",
        1.0,
        99.0,
        28 * DAY,
    )


def test_the_example_file_is_valid_and_shows_every_section() -> None:
    config = load_config(ROOT / "gustfront.example.yaml")
    assert [s.kind for s in config.sources] == ["prometheus", "scrape", "requests", "outputs"]
    assert set(Config.model_fields) == config.model_fields_set
    built_in = Config.built_in()
    for section in ("roles", "retention", "outputs", "detect", "app", "limits"):
        assert getattr(config, section) == getattr(built_in, section), "the example shows the defaults"


def test_files_are_taken_from_the_folder_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("""
database: sqlite:///./data/g.db
sources:
  - requests: {file: logs/a.jsonl}
  - scrape: {file_sd: ["/etc/sd/*.json", "sd/*.json"], token_file: t}
""")
    config = load_config(file)
    assert config.database == f"sqlite:///{tmp_path}/data/g.db"
    assert config.sources[0].requests is not None
    assert config.sources[0].requests.file == str(tmp_path / "logs/a.jsonl")
    scrape = config.sources[1].scrape
    assert scrape is not None
    assert scrape.file_sd == ["/etc/sd/*.json", str(tmp_path / "sd/*.json")]
    assert scrape.token_file == str(tmp_path / "t")


def test_all_problems_are_reported_at_once_with_path_value_and_fix() -> None:
    found = problems("""
databse: x
sources:
  - prometheus: {url: "http://p:9090", every: 15, selektor: x}
  - scrape: {targets: [a:1, {url: b, lables: {}}], every: [1]}
  - scrape: {name: nowhere}
  - {}
classes:
  - {name: a, match: [pool]}
  - {name: a, match: ['b="c"']}
  - {match: [1]}
slos:
  - {name: x, class: b, signal: ttft, threshold: 5, objective_percent: 100}
  - {name: x, class: a, signal: tfft, threshold: 5s, objective_percent: 99}
detect: {lag: 5, shadow: [wedge]}
retention: 5
app: {port: 99999}
limits: {classes: none}
""")
    assert found["databse"].fix == "did you mean database?"
    assert found["sources[0].prometheus.every"].value == 15
    assert "15s" in found["sources[0].prometheus.every"].fix
    assert found["sources[0].prometheus.selektor"].fix == "did you mean selector?"
    assert found["sources[1].scrape.targets[1].lables"].fix == "did you mean labels?"
    assert "not a duration" in found["sources[1].scrape.every"].problem
    assert "nothing to scrape" in found["sources[2].scrape"].problem
    assert "exactly one kind" in found["sources[3]"].problem
    assert "pool" in found["classes[0].match"].problem
    assert "twice" in found["classes[1].name"].problem
    assert found["classes[2].name"].problem == "is missing"
    assert found["slos[0].threshold"].value == 5
    assert found["slos[0].objective_percent"].value == 100
    assert found["slos[0].class"].value == "b"
    assert "ttft" in found["slos[1].signal"].fix
    assert "twice" in found["slos[1].name"].problem
    assert "unit" in found["detect.lag"].problem
    assert found["detect.shadow[0]"].fix == "use wedged"
    assert "mapping" in found["retention"].problem
    assert found["app.port"].value == 99999
    assert found["limits.classes"].value == "none"


def test_the_message_lists_every_problem_under_the_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("app: {port: 0}\ndetect: {every: 0s}\n")
    with pytest.raises(ConfigErrors) as error:
        load_config(file)
    lines = str(error.value).splitlines()
    assert lines[0] == f"{file}: 2 problems"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["detect.every", "app.port"]
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: b: c", "line 1, column 5"),
        ("app:\n  port: 1\n app: 2", "line 3"),
        ("app: {}\napp: {}", "line 2, column 1"),
        ("app: [1, 2", "line 1"),
        ("app: *nothing", "line 1"),
        ("!!python/object/apply:os.system ['true']", "line 1"),
        ("\x01", "YAML"),
    ],
)
def test_a_yaml_error_names_line_and_column(text: str, where: str) -> None:
    with pytest.raises(ConfigErrors) as error:
        parse_config(text)
    assert error.value.problems[0].path.startswith(where)


@pytest.mark.parametrize("text", ["- a\n- b", "just text", "42"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    assert "mapping" in problems(text)["configuration"].problem


SECRETS = """
database: postgresql://u:hunter2@h/x
sources:
  - prometheus:
      url: http://u:hunter2@p:9090
      headers: {Authorization: Bearer hunter2, X: [hunter2]}
      token_file: [hunter2]
      password: hunter2
  - scrape: {targets: ["u:hunter2@h:1"], token: hunter2}
"""


def test_secrets_are_never_repeated_in_errors() -> None:
    with pytest.raises(ConfigErrors) as error:
        parse_config(SECRETS)
    assert len(error.value.problems) == 6
    assert "hunter2" not in str(error.value)
    assert "hunter2" not in repr([vars(p) for p in error.value.problems])


def test_secrets_are_never_repeated_in_the_configuration_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter2")
    config = parse_config("""
database: postgresql+psycopg://u:${PW}@h/x
sources: [{prometheus: {url: "http://p:9090", headers: {Authorization: "Bearer ${PW}"}}}]
""")
    assert config.database == "postgresql+psycopg://u:hunter2@h/x"
    assert config.sources[0].prometheus is not None
    assert config.sources[0].prometheus.headers == {"Authorization": "Bearer hunter2"}
    assert "hunter2" not in repr(config) + str(config)
    assert config.database_shown == "postgresql+psycopg://u:***@h/x"
    assert hide_password("sqlite:////a/b:c@d.db") == "sqlite:////a/b:c@d.db"


def test_a_variable_that_is_not_set_is_an_error_and_not_an_empty_password() -> None:
    found = problems(
        "database: postgresql://u:${GUSTFRONT_NO_SUCH}@h/x\napp: {host: '${GUSTFRONT_NO_SUCH}', port: 0}"
    )
    assert "GUSTFRONT_NO_SUCH is not set" in found["database"].problem
    assert "GUSTFRONT_NO_SUCH is not set" in found["app.host"].problem
    assert found["app.port"].value == 0
    assert len(found) == 3


def test_an_expanded_value_that_is_wrong_is_shown_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter2")
    found = problems("app: {host: h, port: '${PW}'}")
    assert found["app.port"].value == "${PW}"


def test_a_secret_file_is_read_without_its_newline_and_its_content_stays_out_of_errors(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("hunter2\n")
    assert read_secret(file) == "hunter2"
    file.write_text("hunter2\nmore")
    with pytest.raises(ConfigError) as error:
        read_secret(file)
    assert "hunter2" not in str(error.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_secret(tmp_path / "absent")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_secret(file)


@pytest.mark.parametrize(
    ("source", "path", "word"),
    [
        ("prometheus: {url: p:9090}", "sources[0].prometheus.url", "http"),
        ("prometheus: {url: 'http://p:99999'}", "sources[0].prometheus.url", "URL"),
        ("prometheus: {url: 'http://p', selector: 'up'}", "sources[0].prometheus.selector", "selector"),
        (
            "prometheus: {url: 'http://p', selector: '{job=vllm}'}",
            "sources[0].prometheus.selector",
            "matcher",
        ),
        ("prometheus: {url: 'http://p', username: u}", "sources[0].prometheus", "password_file"),
        (
            "prometheus: {url: 'http://p', username: u, password_file: f, token_file: t}",
            "sources[0].prometheus",
            "two ways",
        ),
        ("prometheus: {url: 'http://p', key_file: k}", "sources[0].prometheus", "cert_file"),
        ("prometheus: {url: 'http://p', every: -5s}", "sources[0].prometheus.every", "duration"),
        ("scrape: {targets: ['a b:1']}", "sources[0].scrape.targets[0].url", "address"),
        ("scrape: {targets: ['a:x']}", "sources[0].scrape.targets[0].url", "address"),
        ("scrape: {targets: ['ftp://a']}", "sources[0].scrape.targets[0].url", "http"),
        ("scrape: {targets: [a:1], timeout: 20s}", "sources[0].scrape", "timeout"),
        ("scrape: {targets: [a:1], path: metrics}", "sources[0].scrape", "slash"),
        ("scrape: {targets: [a:1], max_bytes: 32 apples}", "sources[0].scrape.max_bytes", "size"),
        ("scrape: {targets: [a:1], scheme: gopher}", "sources[0].scrape.scheme", "http"),
        ("requests: {file: f, point: engine}", "sources[0].requests.point", "gateway"),
        ("requests: {}", "sources[0].requests.file", "missing"),
        ("kafka: {url: x}", "sources[0].kafka", "unknown key"),
        ("prometheus: null", "sources[0]", "exactly one kind"),
    ],
)
def test_a_source_that_cannot_work_is_refused(source: str, path: str, word: str) -> None:
    found = problems(f"sources: [{{{source}}}]")
    assert path in found
    assert word in str(found[path])


def test_sources_are_named_by_address_and_a_second_one_needs_a_name() -> None:
    config = parse_config(
        "sources: [{prometheus: {url: 'http://p:9090/'}}, {scrape: {targets: [a:1]}}, {requests: {file: /f}}]"
    )
    assert [s.name for s in config.sources] == ["prometheus:p:9090", "scrape", "requests:/f"]
    found = problems("sources: [{scrape: {targets: [a:1]}}, {scrape: {targets: [b:1]}}]")
    assert "twice" in found["sources[1].name"].problem


def test_an_address_is_completed_with_scheme_and_path() -> None:
    config = parse_config("sources: [{scrape: {targets: [a:1], scheme: https, path: /m}}]")
    scrape = config.sources[0].scrape
    assert scrape is not None
    assert scrape.url_of("a:1") == "https://a:1/m"
    assert scrape.url_of("http://b:2/") == "http://b:2/m"
    assert scrape.url_of("http://b:2/prometheus/metrics") == "http://b:2/prometheus/metrics"


def test_labels_that_yaml_reads_as_numbers_are_text() -> None:
    config = parse_config(
        "sources: [{scrape: {targets: [{url: a:1, labels: {rank: 0, canary: true}}], labels: {release: 2026-09-20}}}]"
    )
    scrape = config.sources[0].scrape
    assert scrape is not None
    assert (scrape.labels, scrape.targets[0].labels) == (
        {"release": "2026-09-20"},
        {"rank": "0", "canary": "true"},
    )


@pytest.mark.parametrize(
    ("size", "expected"),
    [("32MiB", 2**25), ("1.5 kB", 1500), ("20GB", 2 * 10**10), ("4096", 4096), (4096, 4096), ("1TiB", 2**40)],
)
def test_sizes_are_read_in_bytes(size: str | int, expected: int) -> None:
    assert parse_config(f"retention: {{max_bytes: {size}}}").retention.max_bytes == expected


@pytest.mark.parametrize("url", ["mysql://h/x", "gustfront.db", "sqlite:x", "http://h"])
def test_a_database_of_another_kind_is_refused(url: str) -> None:
    assert "sqlite:////" in problems(f"database: {url}")["database"].fix


def test_postgres_is_an_alias_and_memory_is_no_file() -> None:
    assert parse_config("database: postgres://h/x").database == "postgresql://h/x"
    assert parse_config("database: 'sqlite://'").database == "sqlite://"
    assert parse_config("database: 'sqlite:///:memory:'", base=Path("/etc")).database == "sqlite:///:memory:"


def test_an_objective_names_its_signal_by_id_and_its_threshold_by_unit() -> None:
    slo = "{name: x, class: a, signal: %s, threshold: %s, objective_percent: 99}"
    config = parse_config(f"slos: [{slo % ('e2e', '1500ms')}]")
    assert (config.slos[0].signal, config.slos[0].threshold) == ("request_latency_seconds", 1.5)
    assert (
        "histogram" in problems(f"slos: [{slo % ('kv_cache_usage_ratio', '5s')}]")["slos[0].signal"].problem
    )
    assert "slos[0].threshold" in problems(f"slos: [{slo % ('ttft', '0s')}]")
    assert "slos[0].threshold" in problems(f"slos: [{slo % ('ttft', 'true')}]")
    assert parse_config(f"slos: [{slo % ('request_prompt_tokens', '4000')}]").slos[0].threshold == 4000


def test_without_classes_an_objective_may_name_any_class() -> None:
    slo = "slos: [{name: x, class: anything, signal: ttft, threshold: 5s, objective_percent: 99}]"
    assert parse_config(slo).slos[0].class_ == "anything"
    found = problems(slo + "\nclasses: [{name: anythin, match: ['a=\"b\"']}]")
    assert found["slos[0].class"].fix == "did you mean anythin?"


def test_reserved_class_names_are_refused() -> None:
    assert (
        "reserved" in problems("""classes: [{name: shared, match: ['a="b"']}]""")["classes[0].name"].problem
    )


def test_a_configuration_does_not_change_after_loading() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config.built_in().app.port = 1  # type: ignore[misc]


def explained(text: str) -> tuple[ConfigError, ...]:
    """The problems of a configuration, none where it is accepted; any other exception is a failure."""
    try:
        parse_config(text)
    except ConfigErrors as error:
        return error.problems
    return ()


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(Config.model_fields)), YAML_VALUES, max_size=4))
@settings(max_examples=150, deadline=None)
def test_whatever_stands_under_a_known_key_is_accepted_or_explained(data: dict[str, object]) -> None:
    found = explained(yaml.safe_dump(data))
    assert all(p.path and p.problem for p in found)


@given(st.text(max_size=60))
@settings(deadline=None)
def test_no_text_crashes_the_loader(text: str) -> None:
    explained(text)
