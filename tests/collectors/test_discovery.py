"""Static, file_sd and http_sd discovery: formats, changes, bad files that cost only themselves."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import discovery
from collectors.discovery import Discovery, endpoint, read_groups
from core.config_models import ScrapeSource
from core.records import Problem
from tests.collectors.misbehaving import plain, raw_server


def source(**more: object) -> ScrapeSource:
    return ScrapeSource.model_validate({"name": "fleet", **more})


async def urls(d: Discovery) -> list[str]:
    return [e.url for e in await d.refresh()]


def test_defaults_are_filled_in_and_the_address_stays_short() -> None:
    e = endpoint(source(targets=["x"], labels={"pool": "a"}), "gpu-1:8000", {"rank": "0"})
    assert (e.url, e.address) == ("http://gpu-1:8000/metrics", "gpu-1:8000")
    assert dict(e.labels) == {"job": "fleet", "instance": "gpu-1:8000", "pool": "a", "rank": "0"}


def test_an_address_may_name_scheme_and_path() -> None:
    e = endpoint(source(targets=["x"]), "https://gpu-1/engine/metrics?x=1", {})
    assert e.url == e.address == "https://gpu-1/engine/metrics?x=1"
    assert dict(e.labels)["instance"] == "gpu-1"


def test_meta_labels_set_scheme_and_path_and_do_not_become_labels() -> None:
    e = endpoint(
        source(targets=["x"]), "h:1", {"__scheme__": "https", "__metrics_path__": "/m", "__meta_x": "1"}
    )
    assert e.url == "https://h:1/m"
    assert set(dict(e.labels)) == {"job", "instance"}


@pytest.mark.parametrize(
    "address", ["", "h:99999", "ftp://h", "http://u:p@h/", "a b", "h\r\nX: y", "http://[::1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        endpoint(source(targets=["x"]), address, {})


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps([{"targets": ["a:1", "b:1"], "labels": {"pool": "p"}}]))
    problems: list[Problem] = []
    d = Discovery(source(file_sd=[str(tmp_path / "*.json")]), problems.append)
    assert await urls(d) == ["http://a:1/metrics", "http://b:1/metrics"]
    file.write_text(json.dumps([{"targets": ["c:1"]}]))
    os.utime(file, ns=(1, 1))
    assert await urls(d) == ["http://c:1/metrics"]
    (tmp_path / "u.json").write_text(json.dumps([{"targets": ["d:1"]}]))
    assert await urls(d) == ["http://c:1/metrics", "http://d:1/metrics"]
    file.unlink()
    assert await urls(d) == ["http://d:1/metrics"]
    assert problems == []


async def test_yaml_files_work_too(tmp_path: Path) -> None:
    (tmp_path / "t.yml").write_text("- targets: ['a:1']\n  labels: {rank: 0}\n")
    (e,) = await Discovery(source(file_sd=[str(tmp_path / "t.yml")]), pytest.fail).refresh()
    assert dict(e.labels)["rank"] == "0"


async def test_a_broken_file_keeps_its_last_good_list_and_costs_the_others_nothing(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('[{"targets": ["a:1"]}]')
    bad.write_text('[{"targets": ["b:1"]}]')
    problems: list[Problem] = []
    d = Discovery(source(file_sd=[str(tmp_path / "*.json")], targets=["s:1"]), problems.append)
    before = await urls(d)
    assert len(before) == 3
    bad.write_text('[{"targets": ["b:1"')
    assert await urls(d) == before
    assert [(p.code, p.subject) for p in problems] == [("sd_unreadable", str(bad))]
    assert "no JSON" in problems[0].message


async def test_a_missing_file_is_told_and_a_glob_without_match_is_not(tmp_path: Path) -> None:
    problems: list[Problem] = []
    d = Discovery(source(file_sd=[str(tmp_path / "x.json"), str(tmp_path / "*.yml")]), problems.append)
    assert await urls(d) == []
    assert [p.code for p in problems] == ["sd_missing"]


async def test_one_bad_target_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps([{"targets": ["a:1", "not an address", "b:1"]}]))
    problems: list[Problem] = []
    assert len(await urls(Discovery(source(file_sd=[str(file)]), problems.append))) == 2
    assert [p.code for p in problems] == ["sd_bad_target"]


async def test_the_same_target_twice_is_scraped_once() -> None:
    assert len(await urls(Discovery(source(targets=["a:1", "a:1", "b:1"]), pytest.fail))) == 2


async def test_http_sd_is_asked_and_its_last_good_list_survives_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "HTTP_SD_EVERY", 0.0)
    answers = [
        plain(b'[{"targets": ["a:1"], "labels": {"pool": "p"}}]'),
        plain(b"oops", "503 Service Unavailable"),
        plain(b"[]"),
    ]
    asked: list[bytes] = []

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        asked.append(head)
        writer.write(answers[len(asked) - 1])
        return False

    problems: list[Problem] = []
    async with raw_server(answer) as port:
        d = Discovery(
            source(http_sd=[f"http://127.0.0.1:{port}/sd"], every="10ms", timeout="5ms"), problems.append
        )
        object.__setattr__(d.source, "timeout", 5.0)
        results = []
        for _ in answers:
            results.append(await urls(d))
            await asyncio.sleep(0.02)
    assert results == [["http://a:1/metrics"], ["http://a:1/metrics"], []]
    assert [p.code for p in problems] == ["sd_unreadable"]
    assert "503" in problems[0].message
    assert b"GET /sd HTTP/1.1" in asked[0]


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)),
    st.sampled_from(["a.json", "a.yml"]),
)
def test_no_document_whatever_crashes_the_reader(data: bytes, name: str) -> None:
    try:
        groups = read_groups(data, name)
    except ValueError:
        return
    assert all(isinstance(address, str) for address, _ in groups)
