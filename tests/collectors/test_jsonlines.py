"""Reading JSON lines: compression, positions, files that grow, move, break or pretend to be others."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.jsonlines import CHUNK, MAX_LINE, JsonLines, Position
from core.errors import InputError

DATA = b"".join(b'{"id": "r%d", "text": "%s"}\n' % (i, b"x" * (i % 90)) for i in range(3000))


class Memory:
    """Cursors in a dictionary."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get_cursor(self, name: str) -> str | None:
        return self.values.get(name)


def plain(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def packed(path: Path, data: bytes, kind: str) -> Path:
    if kind == "gz":
        return plain(path, gzip.compress(data))
    if kind == "zst":
        return plain(path, zstandard.ZstdCompressor().compress(data))
    if kind == "zst-long":
        params = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
        return plain(path, zstandard.ZstdCompressor(compression_params=params).compress(data))
    if kind == "frames":
        half = data.index(b"\n", len(data) // 2) + 7
        return plain(
            path, b"".join(zstandard.ZstdCompressor().compress(d) for d in (data[:half], data[half:]))
        )
    return plain(path, data)


KINDS = ["plain", "gz", "zst", "zst-long", "frames"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_compression_gives_the_same_lines(tmp_path: Path, kind: str) -> None:
    lines = list(JsonLines(packed(tmp_path / "a", DATA, kind)).lines())
    assert [line.data for line in lines] == DATA.rstrip(b"\n").split(b"\n")
    assert [line.number for line in lines] == list(range(1, 3001))
    assert lines[-1].end == len(DATA)
    assert all(line.complete for line in lines)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", [1, 2, 17, 2999, 3000])
def test_reading_goes_on_exactly_where_it_stopped(tmp_path: Path, kind: str, stop: int) -> None:
    path = packed(tmp_path / "a", DATA, kind)
    store = Memory()
    name, start = JsonLines(path).resume(store, "t")
    assert start == Position()
    first = list(JsonLines(path).lines(start))[:stop]
    store.values[name] = first[-1].position().to_json()
    again, position = JsonLines(path).resume(store, "t")
    assert again == name
    rest = list(JsonLines(path).lines(position))
    assert [line.data for line in first + rest] == DATA.rstrip(b"\n").split(b"\n")
    assert [line.number for line in rest] == list(range(stop + 1, 3001))


@given(
    st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), min_size=1, max_size=30),
    st.booleans(),
    st.data(),
)
@settings(max_examples=120, deadline=None)
def test_any_bytes_split_and_resume_alike(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], ended: bool, data: st.DataObject
) -> None:
    raw = b"\n".join([b"{}", *parts]) + (b"\n" if ended else b"")
    path = plain(tmp_path_factory.mktemp("l") / "a.jsonl", raw)
    whole = list(JsonLines(path).lines())
    expected = raw.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [line.data for line in whole] == expected
    cut = data.draw(st.integers(1, len(whole)))
    store = Memory()
    name, _ = JsonLines(path).resume(store, "t")
    store.values[name] = whole[cut - 1].position().to_json()
    _, position = JsonLines(path).resume(store, "t")
    assert position.line == cut
    assert [line.data for line in JsonLines(path).lines(position)] == expected[cut:]


def test_a_file_that_grew_goes_on_and_a_renamed_or_compressed_one_too(tmp_path: Path) -> None:
    path, store = plain(tmp_path / "a.jsonl", DATA[:50_000]), Memory()
    name, _ = JsonLines(path).resume(store, "t")
    done = [line for line in JsonLines(path).lines() if line.complete]
    store.values[name] = done[-1].position().to_json()
    moved = packed(tmp_path / "b.jsonl.gz", DATA, "gz")
    again, position = JsonLines(moved).resume(store, "t")
    assert again == name
    rest = list(JsonLines(moved).lines(position))
    assert [line.data for line in done + rest] == DATA.rstrip(b"\n").split(b"\n")


def test_a_shorter_copy_of_a_file_adds_nothing(tmp_path: Path) -> None:
    path, store = plain(tmp_path / "a.jsonl", DATA), Memory()
    name, _ = JsonLines(path).resume(store, "t")
    store.values[name] = list(JsonLines(path).lines())[-1].position().to_json()
    for kind in KINDS:
        short = packed(tmp_path / f"short-{kind}", DATA[:30_000], kind)
        again, position = JsonLines(short).resume(store, "t")
        assert again == name
        assert list(JsonLines(short).lines(position)) == []


def test_another_file_with_the_same_first_line_is_read_from_its_beginning(tmp_path: Path) -> None:
    first = b'{"version": 1}\n'
    one = plain(tmp_path / "one", first + b'{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n')
    two = plain(tmp_path / "two", first + b'{"id": "x"}\n{"id": "y"}\n{"id": "z"}\n{"id": "w"}\n')
    store = Memory()
    name, _ = JsonLines(one).resume(store, "t")
    store.values[name] = list(JsonLines(one).lines())[-1].position().to_json()
    other, position = JsonLines(two).resume(store, "t")
    assert other != name
    assert position == Position()
    store.values[other] = list(JsonLines(two).lines())[-1].position().to_json()
    assert JsonLines(one).resume(store, "t")[0] == name
    assert JsonLines(two).resume(store, "t")[0] == other


def test_an_unfinished_first_line_is_not_remembered_but_a_whole_record_is(tmp_path: Path) -> None:
    assert JsonLines(plain(tmp_path / "a", b'{"id": "a')).resume(Memory(), "t") == ("", Position())
    assert JsonLines(plain(tmp_path / "b", b"")).resume(Memory(), "t") == ("", Position())
    alone, _ = JsonLines(plain(tmp_path / "c", b'{"id": "a"}')).resume(Memory(), "t")
    ended, _ = JsonLines(plain(tmp_path / "d", b'{"id": "a"}\n{"id": "b"}\n')).resume(Memory(), "t")
    assert alone == ended != ""


def test_a_line_of_fifty_megabytes_is_skipped_without_its_text(tmp_path: Path) -> None:
    huge = b'{"id": "' + b"x" * 50_000_000 + b'"}\n'
    path = plain(tmp_path / "a.gz", gzip.compress(b'{"id": 1}\n' + huge + b'{"id": 2}\n', 1))
    lines = list(JsonLines(path).lines())
    assert [line.data for line in lines] == [b'{"id": 1}', None, b'{"id": 2}']
    assert lines[1].end == 10 + len(huge)
    store = Memory()
    name, _ = JsonLines(path).resume(store, "t")
    store.values[name] = lines[1].position().to_json()
    _, position = JsonLines(path).resume(store, "t")
    assert [line.data for line in JsonLines(path).lines(position)] == [b'{"id": 2}']


def test_lines_around_the_chunk_size_are_whole(tmp_path: Path) -> None:
    parts = [b"a" * (CHUNK - 1), b"b" * CHUNK, b"c" * (CHUNK + 1), b"d" * (3 * CHUNK), b"e"]
    lines = list(JsonLines(plain(tmp_path / "a", b"\n".join(parts))).lines())
    assert [line.data for line in lines] == parts
    assert not lines[-1].complete
    assert max(map(len, parts)) < MAX_LINE


def test_a_missing_file_or_folder_is_an_input_error_with_a_fix(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(InputError, match="Fix: "):
            JsonLines(path)


@pytest.mark.parametrize("kind", ["gz", "zst", "frames"])
def test_broken_compression_delivers_what_came_before_and_says_so(tmp_path: Path, kind: str) -> None:
    whole = packed(tmp_path / "a", DATA * 40, kind).read_bytes()
    cut = plain(tmp_path / "cut", whole[: len(whole) * 2 // 3])
    seen = []
    with pytest.raises(InputError, match="broken or cut off"):
        seen.extend(line.data for line in JsonLines(cut).lines())
    noise = plain(tmp_path / "noise", whole[:20] + b"\x00" * 200 + whole[220:])
    with pytest.raises(InputError, match="noise: the compressed data is broken"):
        list(JsonLines(noise).lines())
