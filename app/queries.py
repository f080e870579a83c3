"""The only cached module: every read of the pages goes through here. Each cache has a time limit and a size limit, and times in
its keys are rounded, so that one visitor's answer serves the next."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from app.services import (
    attention,
    deliveries,
    fleet,
    health,
    incident_load,
    kv_cache,
    quality_page,
    replica_detail,
    replica_table,
    settings_page,
    slo_curves,
    slo_page,
    slos,
)
from app.services import cards as cards_service
from app.services import demo as demo_service
from app.services import explore as explore_service
from app.services import odd as odd_service
from app.services.attention import Standing
from app.services.deliveries import ReceiverState
from app.services.demo import Demo
from app.services.gateway import Chunk, Detail, Fold, Where, fold
from app.services.heat import HeatMap
from app.services.incident_view import IncidentView
from app.services.measures import MEASURES
from app.services.quality_page import QualityPage
from app.services.rates import Rate
from app.services.replica_load import load_heats
from app.services.slo_curves import SloDetail
from app.services.slo_page import More
from app.services.slos import SloRow
from app.services.view import View
from app.storage import configuration, shared_store
from core.incidents import Incident
from core.slo import Objective
from detectors.quality.cascade import Cascade
from sql.store import Store

BRIEF, LONG, SLOW = 10.0, 60.0, 300.0
"""What people change is read anew every ten seconds. What is only measured is kept for a minute: the key of a live view changes
with each tick of fifteen seconds, so that only views of the past live so long."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What can be chosen in the filters."""

    classes: tuple[str, ...]
    pools: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NowModel:
    """Everything on the Now page but the heat map."""

    coverage: fleet.Coverage
    incidents: tuple[Incident, ...]
    open: tuple[IncidentView, ...]
    cards: tuple[cards_service.ClassCard, ...]
    class_order: tuple[str, ...]


@st.cache_data(ttl=BRIEF, max_entries=4, show_spinner=False)
def _newest(url: str) -> float | None:
    return shared_store(url).newest()


def newest() -> float | None:
    """Time of the newest data; None in an empty database."""
    return _newest(configuration().database)


@st.cache_data(ttl=LONG, max_entries=4, show_spinner=False)
def _demonstration(url: str) -> Demo | None:
    return demo_service.demonstration(shared_store(url))


def demonstration() -> Demo | None:
    """The demonstration this database belongs to; None for a real fleet."""
    return _demonstration(configuration().database)


@st.cache_data(ttl=BRIEF, max_entries=4, show_spinner=False)
def _catching_up(url: str) -> bool:
    demo = _demonstration(url)
    return demo is not None and demo_service.writes_past(demo, _newest(url), time.time())


def catching_up() -> bool:
    """Whether a demonstration is still writing its past: the screens then follow its newest data."""
    return _catching_up(configuration().database)


@st.cache_data(ttl=LONG, max_entries=4, show_spinner=False)
def _dimensions(url: str, at: float | None) -> Dimensions:
    return Dimensions(*fleet.dimensions(shared_store(url), configuration(), at))


def dimensions() -> Dimensions:
    """Classes, pools and models known around the newest data."""
    at = newest()
    return _dimensions(configuration().database, None if at is None else at // 300 * 300)


def _key(view: View) -> View:
    """The view as a cache key: the newest data only counts per tick."""
    return replace(view, newest=None if view.newest is None else view.newest // 15 * 15)


@st.cache_data(ttl=SLOW * 6, max_entries=2000, show_spinner=False, refresh_mode="background")
def _finished(
    url: str, objectives: tuple[Objective, ...], where: Where, start: float, end: float, detail: Detail
) -> Chunk:
    return fold(shared_store(url), objectives, where, start, end, detail)


def _folder(url: str) -> Fold:
    """Reads the gateway log; whole spans that ended an hour before the newest data are remembered."""
    known = _newest(url)

    def read(
        objectives: Sequence[Objective], where: Where, start: float, end: float, detail: Detail
    ) -> Chunk:
        whole = start % 3600 == 0 and end % 3600 == 0 and known is not None and end <= known - 3600
        if whole:
            return _finished(url, tuple(objectives), where, start, end, detail)
        return fold(shared_store(url), objectives, where, start, end, detail)

    return read


@st.cache_data(ttl=LONG, max_entries=64, show_spinner=False)
def _slo_rows(url: str, view: View) -> tuple[SloRow, ...]:
    return slos.rows(shared_store(url), view, configuration(), _folder(url))


def _slow_key(view: View) -> View:
    """For what hardly changes within five minutes."""
    end = view.as_of // 300 * 300 if view.live else view.as_of
    return replace(view, start=end - 86400, as_of=end, newest=None)


@st.cache_data(ttl=SLOW, max_entries=64, show_spinner=False)
def _degraded(url: str, view: View) -> dict[str, Rate]:
    return cards_service.degraded(shared_store(url), view)


@st.cache_data(ttl=BRIEF, max_entries=32, show_spinner=False)
def _open(url: str, view: View) -> tuple[IncidentView, ...]:
    """Open incidents do not depend on the range shown."""
    store = shared_store(url)
    return incident_load.open_views(store, view, configuration(), incident_load.in_range(store, view))


@st.cache_data(ttl=LONG, max_entries=32, show_spinner=False)
def _cards(url: str, view: View) -> tuple[cards_service.ClassCard, ...]:
    rows, degraded = _slo_rows(url, _slo_key(view)), _degraded(url, _slow_key(view))
    return cards_service.cards(shared_store(url), view, configuration(), rows, degraded)


@st.cache_data(ttl=BRIEF, max_entries=32, show_spinner=False)
def _now(url: str, view: View) -> NowModel:
    store, config = shared_store(url), configuration()
    incidents = incident_load.in_range(store, view)
    cards = _cards(url, view)
    return NowModel(
        coverage=fleet.coverage(store, view),
        incidents=incidents,
        open=_open(url, replace(view, start=view.as_of - 3600)),
        cards=cards,
        class_order=tuple(dict.fromkeys([*config.class_names, *sorted(c.class_ for c in cards)])),
    )


def now(view: View) -> NowModel:
    """The Now page."""
    return _now(configuration().database, _key(view))


@st.cache_data(ttl=LONG, max_entries=64, show_spinner=False)
def _heat(url: str, view: View, measure: str) -> HeatMap:
    return load_heats(shared_store(url), view, [MEASURES[measure]])[measure]


def heat(view: View, measure: str) -> HeatMap:
    """The heat map of one measure."""
    return _heat(configuration().database, _key(view), measure)


@st.cache_data(ttl=BRIEF, max_entries=64, show_spinner=False)
def _incident(url: str, view: View, incident_id: str) -> incident_load.Loaded | None:
    return incident_load.load(shared_store(url), view, configuration(), incident_id)


def incident(view: View, incident_id: str) -> incident_load.Loaded | None:
    """One incident with its log; None where there is none of that id (or nobody had been told yet at ``as_of``)."""
    return _incident(configuration().database, _key(view), incident_id)


def incident_changed() -> None:
    """Somebody acted on an incident: what is shown of incidents is read anew."""
    _incident.clear()
    _standings.clear()


@st.cache_data(ttl=BRIEF, max_entries=8, show_spinner=False)
def _standings(url: str, ids: tuple[str, ...]) -> dict[str, Standing]:
    store = shared_store(url)
    found = [i for key in ids if (i := store.incident(key)) is not None]
    known = attention.load(store, configuration(), found)
    return {i.id: known.standing(i) for i in found}


def standings(ids: Iterable[str]) -> dict[str, Standing]:
    """How incidents stand with people right now, by id."""
    wanted = tuple(sorted(set(ids)))
    return _standings(configuration().database, wanted) if wanted else {}


def _slo_key(view: View) -> View:
    """SLOs are evaluated per minute, whatever the range shown."""
    end = view.as_of // 60 * 60 if view.live else view.as_of
    return replace(view, start=end - 3600, as_of=end, newest=None)


def slo_rows(view: View) -> tuple[SloRow, ...]:
    """All objectives at ``as_of``."""
    return _slo_rows(configuration().database, _slo_key(view))


@st.cache_data(ttl=LONG, max_entries=64, show_spinner=False)
def _slo_detail(url: str, view: View, name: str) -> SloDetail:
    return slo_curves.detail(shared_store(url), view, configuration(), name, _folder(url))


def slo_detail(view: View, name: str) -> SloDetail:
    """Curves of one objective over the view's range."""
    return _slo_detail(configuration().database, _key(view), name)


@st.cache_data(ttl=SLOW, max_entries=64, show_spinner=False, refresh_mode="background")
def _slo_more(url: str, view: View) -> dict[str, More]:
    store = shared_store(url)
    return {row.config.name: slo_page.more(store, row) for row in _slo_rows(url, view)}


def slo_more(view: View) -> dict[str, More]:
    """What ate each budget, how it ends, percentiles by prompt length; anew every five minutes."""
    end = view.as_of // 300 * 300 if view.live else view.as_of
    return _slo_more(configuration().database, replace(view, start=end - 3600, as_of=end, newest=None))


@st.cache_data(ttl=LONG, max_entries=4, show_spinner=False)
def _oldest(url: str) -> float | None:
    return shared_store(url).oldest()


def slo_months(view: View) -> list[str]:
    """Months that can be reported, the newest first."""
    return slo_page.months(view.as_of, _oldest(configuration().database))


def month_file(month: str, form: str) -> str:
    """A month report, made when it is asked for."""
    return slo_page.download(shared_store(configuration().database), configuration(), month, form)


@st.cache_data(ttl=BRIEF, max_entries=16, show_spinner=False)
def _health(url: str, view: View) -> health.DataHealth:
    return health.data_health(shared_store(url), view)


def data_health(view: View) -> health.DataHealth:
    """Targets, signals and problems."""
    return _health(configuration().database, _key(view))


@st.cache_data(ttl=BRIEF, max_entries=4, show_spinner=False)
def _receivers(url: str) -> list[ReceiverState]:
    return deliveries.receivers(shared_store(url), configuration(), time.time())


def receivers() -> list[ReceiverState]:
    """Who is told of incidents, and how that stands now."""
    return _receivers(configuration().database)


@st.cache_data(ttl=BRIEF, max_entries=4, show_spinner=False)
def _delivery_stopped(url: str) -> str:
    return deliveries.not_running(shared_store(url), configuration(), time.time())


def delivery_stopped() -> str:
    """Why nobody is told of anything although somebody should be; "" while all is well."""
    return _delivery_stopped(configuration().database)


def forget_receivers() -> None:
    """After a test: read them anew."""
    _receivers.clear()


@st.cache_data(ttl=LONG, max_entries=16, show_spinner=False)
def _quality(url: str, view: View) -> QualityPage:
    return quality_page.load(shared_store(url), view)


def quality(view: View) -> QualityPage:
    """Rates, strata, load verdict and incidents of the Quality × load page."""
    return _quality(configuration().database, _minute(view))


@st.cache_data(ttl=SLOW, max_entries=16, show_spinner=False)
def _quality_tasks(url: str, view: View) -> list[Cascade]:
    return quality_page.tasks(shared_store(url), view)


def quality_tasks(view: View) -> list[Cascade]:
    """How likely a task of some turns stays clean."""
    return _quality_tasks(configuration().database, _minute(view))


@st.cache_data(ttl=SLOW, max_entries=32, show_spinner=False)
def _usual_room(url: str, view: View, until: float) -> kv_cache.Learnt:
    return kv_cache.usual_room(shared_store(url), view, until)


@st.cache_data(ttl=LONG, max_entries=16, show_spinner=False)
def _kv_cache(url: str, view: View) -> kv_cache.KvCache:
    def learn(_: Store, wanted: View, until: float) -> kv_cache.Learnt:
        return _usual_room(url, replace(_slow_key(wanted), start=0.0), until)

    return kv_cache.load(shared_store(url), view, learn)


def kv(view: View) -> kv_cache.KvCache:
    """The KV cache page."""
    return _kv_cache(configuration().database, _key(view))


@st.cache_data(ttl=LONG, max_entries=16, show_spinner=False)
def _replicas(url: str, view: View) -> replica_table.ReplicaTable:
    return replica_table.table(shared_store(url), view)


def replicas(view: View) -> replica_table.ReplicaTable:
    """All replicas beside each other; they do not depend on the range shown."""
    key = _key(view)
    return _replicas(configuration().database, replace(key, start=key.as_of - 3600))


@st.cache_data(ttl=LONG, max_entries=32, show_spinner=False)
def _replica(url: str, view: View, pool: str, names: tuple[str, ...]) -> replica_detail.ReplicaDetail:
    return replica_detail.load(shared_store(url), view, pool, names)


def replica(view: View, pool: str, names: tuple[str, ...]) -> replica_detail.ReplicaDetail:
    """Charts and events of one or two replicas of a pool."""
    return _replica(configuration().database, _key(view), pool, names)


@st.cache_data(ttl=LONG, max_entries=4, show_spinner=False)
def _signals(url: str) -> list[str]:
    return explore_service.stored_signals(shared_store(url))


def signals() -> list[str]:
    """Signals that the database has."""
    return _signals(configuration().database)


@st.cache_data(ttl=LONG, max_entries=64, show_spinner=False)
def _explore(url: str, view: View, name: str, stat: str, by: explore_service.By) -> explore_service.Drawing:
    return explore_service.draw(shared_store(url), view, name, stat, by)


def explore(view: View, name: str, stat: str, by: explore_service.By) -> explore_service.Drawing:
    """One signal over the range."""
    return _explore(configuration().database, _key(view), name, stat, by)


@st.cache_data(ttl=BRIEF, max_entries=16, show_spinner=False)
def _overlay(url: str, view: View) -> explore_service.Overlay:
    return explore_service.overlay(shared_store(url), view)


def overlay(view: View) -> explore_service.Overlay:
    """Incidents and events of the range."""
    return _overlay(configuration().database, _key(view))


@st.cache_data(ttl=SLOW, max_entries=16, show_spinner=False)
def _odd(url: str, view: View) -> odd_service.OddReport:
    return odd_service.odd(shared_store(url), view.start, view.as_of, pool=view.pool, class_=view.class_)


def odd(view: View) -> odd_service.OddReport:
    """What was odd in the range; takes seconds."""
    return _odd(configuration().database, _minute(view))


@st.cache_data(ttl=BRIEF, max_entries=2, show_spinner=False)
def _settings(url: str, path: str) -> settings_page.Settings:
    return settings_page.load(shared_store(url), configuration())


def settings() -> settings_page.Settings:
    """The running configuration."""
    config = configuration()
    return _settings(config.database, str(config.path))


def _minute(view: View) -> View:
    """The view up to the last whole minute: sampled outputs are analysed by five minutes of admission."""
    end = view.as_of // 60 * 60 if view.live else view.as_of
    return replace(view, start=end - view.length, as_of=end, newest=None)
