"""``gustfront bench text`` measures the rules on a file of outputs, and never calls what it did not measure zero."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from app.cli import cli
from tests.core.text_samples import GERMAN, PROSE

runner = CliRunner()


def outputs(path: Path) -> Path:
    loop = "The same sentence comes again and again. " * 40
    rows = [(PROSE, "normal"), (GERMAN, "normal"), (loop, "normal"), (loop, "loop")]
    pd.DataFrame(rows, columns=["output", "auto_label"]).to_parquet(path)
    return path


def test_the_figures_of_a_file_are_one_json_object(tmp_path: Path) -> None:
    done = runner.invoke(
        cli, ["bench", "text", "--json", "--texts", "10", "--traces", str(outputs(tmp_path / "o.parquet"))]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["outputs_per_second"] > 100
    assert found["rows_labelled_normal"] == 3
    assert found["false_positives_per_10k"] == pytest.approx(3333.33)
    assert 9000 < found["false_positives_upper_per_10k"] < 10_000
    assert found["recall"]["loop, 12 words, 512"] == 1.0


def test_without_a_file_false_positives_are_not_measured() -> None:
    done = runner.invoke(cli, ["bench", "text", "--texts", "10"])
    assert done.exit_code == 0, done.output
    assert "false positives are not measured" in done.stdout


@pytest.mark.parametrize(
    ("columns", "says"), [(["text", "label"], "it needs output"), (["output", "kind"], "it needs output")]
)
def test_a_file_of_something_else_is_named_with_what_it_lacks(
    tmp_path: Path, columns: list[str], says: str
) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame([("a", "b")], columns=columns).to_parquet(path)
    done = runner.invoke(cli, ["bench", "text", "--traces", str(path)])
    assert done.exit_code == 3
    assert says in done.stderr


def test_a_file_that_is_no_parquet_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("no")
    done = runner.invoke(cli, ["bench", "text", "--traces", str(path)])
    assert done.exit_code == 3
    assert "x.parquet" in done.stderr.replace("\n", "")
