"""One history, judged by Gustfront and by its peers; both verdicts are kept."""

from __future__ import annotations

from typing import Any

from bench.histories import history
from bench.judged import JUDGES, Judged, code, judge, keep
from bench.peers import grafana, netdata, rules
from bench.peers.series import Series
from sql.store import Store


def run(name: str, seed: int) -> tuple[Judged, dict[str, list[dict[str, Any]]]]:
    """Gustfront's verdict on one history, and the peers' alerts."""
    one = history(name, seed)

    def make() -> list[dict[str, Any]]:
        with Store.open(one.config.database, read_only=True) as store:
            series = Series.of(store, one.truth["start"], one.truth["end"])
        found = {**grafana.judge(series), **netdata.judge(series), **rules.judge(series, one.config)}
        return [{"who": who, "alerts": a} for who, a in found.items()]

    mark = code((*JUDGES[1:], "bench/peers"))
    rows, _ = keep(f"peers-{one.folder.name}", mark, make)
    return judge(name, seed), {row["who"]: row["alerts"] for row in rows}
