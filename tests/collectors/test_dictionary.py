"""Engine dictionaries: the schema refuses nonsense by name, components are recognised, names are folded."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from collectors.dictionary import FOLDER, Dictionary, Source, canonical_name, load_dictionary, read_dictionary
from collectors.dictionary_schema import Detect, SignalSources
from collectors.mapping import plan
from core.classes import ClassRules
from core.errors import ConfigError
from core.frames import Target
from core.signals import SIGNALS

GOOD = """
component: mine
title: Mine
detect: {order: 1, any: [mine_up], fragment: [mine_]}
signals:
  ttft_seconds:
    - {family: mine_ttft, type: histogram}
"""


def detect(*names: str, **labels: str) -> str:
    return "+".join(load_dictionary().detect([(n, labels) for n in names]))


def test_all_components_of_the_facts_have_a_dictionary(shared: Path) -> None:
    facts = yaml.safe_load((shared / "engines.yaml").read_text())
    assert set(load_dictionary().components) == set(facts["components"])
    assert len(load_dictionary().components) == 23


def test_each_component_has_every_signal_that_the_facts_give_it(shared: Path) -> None:
    facts = yaml.safe_load((shared / "engines.yaml").read_text())
    dictionary = load_dictionary()
    missing = []
    for signal in facts["signals"]:
        for component, entries in signal["engines"].items():
            known = {e.signal for e in dictionary.entries(component)} | set(dictionary.derived(component))
            elsewhere = set(dictionary.components[component].absent)
            if entries and signal["id"] not in known | elsewhere:
                missing.append((component, signal["id"]))
    assert missing == []


def test_every_family_of_the_facts_is_read_for_its_signal(shared: Path) -> None:
    facts = yaml.safe_load((shared / "engines.yaml").read_text())
    dictionary = load_dictionary()
    missing = []
    for signal in facts["signals"]:
        for component, entries in signal["engines"].items():
            read = {
                canonical_name(f)
                for e in dictionary.entries(component)
                if e.signal == signal["id"]
                for f in (*e.source.families, *e.source.plus)
            }
            for entry in entries:
                name = canonical_name(entry["name"])
                derived = "DERIVED" in entry.get("note", "") or " " in name
                if not derived and name not in read:
                    missing.append((component, signal["id"], entry["name"]))
    assert missing == []


@pytest.mark.parametrize(
    ("raw", "folded"),
    [
        ("vllm:num_requests_running", "vllm:num_requests_running"),
        ("vllm_num_requests_running", "vllm:num_requests_running"),
        ("ray_vllm:num_requests_running", "vllm:num_requests_running"),
        ("ray_vllm_num_requests_running", "vllm:num_requests_running"),
        ("kserve_vllm:num_requests_running", "vllm:num_requests_running"),
        ("sglang_token_usage", "sglang:token_usage"),
        ("trtllm_kv_cache_utilization", "trtllm:kv_cache_utilization"),
        ("pytrtllm:num_requests_running", "pytrtllm:num_requests_running"),
        ("lmcache:lmcache_is_healthy", "lmcache:lmcache_is_healthy"),
        ("gen_ai.server.request.duration", "gen_ai_server_request_duration"),
        ("my_vllm:x", "my_vllm:x"),
        ("vllmx_y", "vllmx_y"),
    ],
)
def test_spellings_of_one_metric_fold_into_one(raw: str, folded: str) -> None:
    assert canonical_name(raw) == folded


@pytest.mark.parametrize(
    ("names", "components"),
    [
        (["vllm:num_requests_running"], "vllm"),
        (["vllm_num_requests_running"], "vllm"),
        (["ray_vllm:num_requests_running"], "ray_serve_llm"),
        (["ray_vllm_num_requests_running"], "ray_serve_llm"),
        (["vllm:num_requests_running", "vllm:healthy_pods_total"], "production_stack_router"),
        (["vllm:prompt_tokens_total"], "vllm"),
        (["sglang_num_running_reqs"], "sglang"),
        (["vllm:num_requests_running", "lmcache:num_lookup_tokens_total"], "vllm+lmcache"),
        (["dynamo_component_uptime_seconds", "vllm:num_requests_running"], "dynamo_component+vllm"),
        (["dynamo_component_requests_total", "sglang:num_running_reqs"], "dynamo_component+sglang"),
        (
            ["dynamo_component_requests_total", "trtllm_request_success_total"],
            "dynamo_component+tensorrt_llm",
        ),
        (["dynamo_frontend_inflight_requests", "dynamo_component_uptime_seconds"], "dynamo_frontend"),
        (["llm_d_epp_request_total", "inference_objective_request_total"], "llmd_router"),
        (["inference_objective_request_total"], "gie"),
        (["nv_trt_llm_request_metrics"], "triton"),
        (["DCGM_FI_DEV_SM_CLOCK"], "dcgm_exporter"),
        (["gpu_package_power"], "amd_dme"),
        (["npu_chip_info_power"], "ascend_npu_exporter"),
        (["gateway_request_model_success_total"], "aibrix_gateway"),
        (["smg_router_requests_total"], "sgl_model_gateway"),
        (["litellm_requests_metric_total"], "litellm"),
        (["gen_ai.server.request.duration_bucket"], "otel_genai"),
        (["tent_read_bytes_total"], "mooncake_master"),
        (["request_success_total", "time_to_first_token_seconds_bucket"], ""),
        (["node_cpu_seconds_total", "up"], ""),
        ([], ""),
    ],
)
def test_components_are_recognised_by_their_families(names: list[str], components: str) -> None:
    assert detect(*names) == components


def test_labels_decide_where_names_alone_do_not() -> None:
    unprefixed = ("request_success_total", "time_to_first_token_seconds_bucket")
    assert detect(*unprefixed, engine_type="trtllm") == "tensorrt_llm"
    assert (
        detect("gen_ai_server_request_duration_seconds_count", gen_ai_original_model="m")
        == "envoy_ai_gateway"
    )


def test_a_router_is_told_from_an_engine_by_the_labels_of_shared_names() -> None:
    dictionary = load_dictionary()
    router = [
        ("vllm:num_requests_running", {"server": "http://a:8000"}),
        ("vllm:num_requests_waiting", {"server": "http://a:8000"}),
    ]
    assert dictionary.detect(router) == ("production_stack_router",)
    engine = [
        ("vllm:num_requests_running", {"server": "rack-7", "model_name": "m"}),
        ("vllm:lora_requests_info", {"server": "rack-7"}),
    ]
    assert dictionary.detect(engine) == ("vllm",)
    assert dictionary.detect([("num_requests_running", {"gateway_pod": "g", "model": "m"})]) == (
        "aibrix_gateway",
    )
    assert dictionary.detect([("gen_ai_client_token_usage_sum", {"gen_ai_original_model": "m"})]) == (
        "envoy_ai_gateway",
    )
    assert dictionary.detect([("gen_ai_client_token_usage_sum", {"gen_ai_request_model": "m"})]) == (
        "otel_genai",
    )


def _example(wanted: str | list[str]) -> str:
    """A label value that passes a filter of a dictionary."""
    if isinstance(wanted, list):
        return wanted[0]
    if not wanted.startswith(("~", "!")):
        return wanted
    tries = (
        "",
        "404",
        "4xx",
        "decode",
        "prefill_cache",
        "device_hit",
        "/v1/completions",
        "evicted",
        "sclk",
        "other",
    )
    source = Source(family="f", type="gauge", where={"a": wanted})
    return next(t for t in tries if source.accepts({"a": t}))


@pytest.mark.parametrize("component", sorted(load_dictionary().components))
def test_every_source_of_a_component_can_give_its_signal(component: str) -> None:
    dictionary = load_dictionary()
    for entry in dictionary.entries(component):
        source = entry.source
        labels = {k: v for k, w in source.where.items() if (v := _example(w))}
        labels |= {names[0]: "7" for names in source.from_labels[-1:]} | {
            n: "7" for names in source.from_labels for n in names
        }
        series = [(source.family, labels)]
        if source.type in ("histogram", "summary"):
            parts = [(f"{source.family}_{x}", labels) for x in ("sum", "count")]
            buckets = [(f"{source.family}_bucket", {**labels, "le": le}) for le in ("1", "+Inf")]
            series = parts + (buckets if source.type == "histogram" else [])
        series += [(n, labels) for n in (source.count, source.times, source.over) if n]
        only = Dictionary(
            {
                component: dictionary.components[component].model_copy(
                    update={
                        "inherits": "",
                        "derived": {},
                        "signals": {entry.signal: SignalSources(sources=[source])},
                        "detect": Detect(order=1, prefix=[""]),
                    }
                )
            },
            "test",
        )
        found = plan(series, only, ClassRules(), Target("h"))
        assert set(found.signals) == {entry.signal}, source.family
        if source.trust == "full" and source.family != "process_start_time_seconds":
            assert found.layout.columns, source.family
            assert {SIGNALS[c.signal].base for c in found.layout.columns} == {entry.signal}


def test_a_counter_is_known_with_and_without_total_and_parts_by_their_suffix() -> None:
    lookup = load_dictionary().lookup("vllm")
    assert {"vllm:prompt_tokens_total", "vllm:prompt_tokens"} <= set(lookup)
    parts = {p for _, p in lookup["vllm:iteration_tokens_total_bucket"]}
    assert parts == {"bucket"}
    assert "vllm:iteration_tokens_count" not in lookup
    assert "vllm:num_requests_running_total" not in lookup


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("type: histogram", "type: histogramm"),
        ("family: mine_ttft", "famly: mine_ttft"),
        ("ttft_seconds:", "ttft_second:"),
        ("type: histogram", "type: histogram, dims: [stage]"),
        ("type: histogram", "type: histogram, as: queue_time_seconds"),
        ("type: histogram", 'type: histogram, where: {a: "~["}'),
        ("type: histogram", "type: gauge, pick: newest"),
        ("order: 1", "order: first"),
        ("order: 1", "order: 1, beside: [nobody]"),
        ("order: 1", "order: 1, hides: [nobody]"),
        ("title: Mine", "title: Mine\ninherits: nobody"),
        ("title: Mine", "title: Mine\nsignals2: {}"),
        ("detect: {", "detect: ["),
    ],
)
def test_a_wrong_dictionary_is_refused_naming_file_and_entry(
    tmp_path: Path, change: str, complaint: str
) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert set(read_dictionary(tmp_path).components) == {"mine"}
    (tmp_path / "mine.yaml").write_text(GOOD.replace(change, complaint, 1))
    with pytest.raises(ConfigError) as caught:
        read_dictionary(tmp_path)
    assert caught.value.path.startswith("mine.yaml")


def test_an_error_names_the_entry_by_signal_and_place(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD.replace("histogram}", "histogram, dims: [stage]}"))
    with pytest.raises(ConfigError, match=r"signals\.ttft_seconds\[0\] \(mine_ttft\).*stage"):
        read_dictionary(tmp_path)


def test_two_files_for_one_component_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)
    with pytest.raises(ConfigError, match="twice"):
        read_dictionary(tmp_path)


def test_the_version_moves_when_a_file_does(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    before = read_dictionary(tmp_path).version
    assert read_dictionary(tmp_path).version == before
    (tmp_path / "a.yaml").write_text(GOOD + "notes: [x]\n")
    assert read_dictionary(tmp_path).version != before


@pytest.mark.parametrize(
    ("where", "labels", "accepted"),
    [
        ({}, {}, True),
        ({"a": "1"}, {"a": "1"}, True),
        ({"a": "1"}, {}, False),
        ({"a": ["1", "2"]}, {"a": "2"}, True),
        ({"a": "~4.."}, {"a": "404"}, True),
        ({"a": "~4.."}, {"a": "4040"}, False),
        ({"a": "!1"}, {"a": "1"}, False),
        ({"a": "!1"}, {}, True),
        ({"a": "!~x.*"}, {"a": "xy"}, False),
        ({"a": "1", "b": "2"}, {"a": "1"}, False),
        ({"a": ""}, {}, True),
    ],
)
def test_where_filters_by_label(
    where: dict[str, str | list[str]], labels: dict[str, str], accepted: bool
) -> None:
    assert Source(family="f", type="gauge", where=where).accepts(labels) is accepted


def test_every_hit_source_with_a_pair_has_its_query_source() -> None:
    dictionary = load_dictionary()
    for name in dictionary.components:
        pairs: dict[str, set[str]] = {}
        for e in dictionary.entries(name):
            if e.source.pair:
                pairs.setdefault(e.signal, set()).add(e.source.pair)
        assert len({frozenset(p) for p in pairs.values()}) <= 1, name


def test_files_are_named_after_their_component_and_only_use_known_signals() -> None:
    for path in FOLDER.glob("*.yaml"):
        data = yaml.safe_load(path.read_text())
        assert data["component"] == path.stem
        assert set(data["signals"]) <= set(SIGNALS)
