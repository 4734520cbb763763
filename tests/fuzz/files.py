"""Targets of what brokers read besides requests: tables, journals, expressions, settings."""

from typing import Any, get_args

from bolide import properties
from bolide.broker.consume.expiry import EXPIRING_TOPICS
from bolide.broker.filters.sql.compiler import _compile
from bolide.broker.pop.events import Event, decode_events, encode_events
from bolide.broker.pop.ordered import ORDERS
from bolide.broker.settings import config as broker_settings
from bolide.broker.settings.config import BrokerConfig
from bolide.config import load, to_texts
from bolide.model.cron import next_time
from bolide.namesrv.config import NameServerConfig
from bolide.protocol import fastjson
from bolide.protocol.record import RecordDraft
from bolide.store import config as store_settings
from bolide.store import tables
from bolide.store.config import StoreConfig
from tests.fuzz import samples
from tests.fuzz.codecs import text_of

_TABLES = (
    tables.TOPICS, tables.GROUPS, tables.CONSUMER_OFFSETS, tables.DELAY_OFFSETS,
    tables.REQUEST_MODES, tables.CONSUMER_FILTERS, tables.QUEUE_MAPPINGS, tables.TIMER_METRICS,
    ORDERS, EXPIRING_TOPICS,
)  # fmt: skip


def table(data: bytes) -> None:
    """A table below `config`: decoded, encoded and decoded again it is the same."""
    kind: Any = _TABLES[data[0] % len(_TABLES)] if data else _TABLES[0]
    found = fastjson.decode(data[1:], kind.shape)
    again = fastjson.decode(kind.encode(found), kind.shape)
    assert kind.encode(again) == kind.encode(found), "a saved table is another one"


def table_seeds() -> list[bytes]:
    return [
        bytes([number]) + kind.encode(samples.sample(kind.shape))  # type: ignore[attr-defined]
        for number, kind in enumerate(_TABLES)
    ]


def journal(data: bytes) -> None:
    events = decode_events(data)
    assert decode_events(encode_events(events)) == events


def journal_seeds() -> list[bytes]:
    return [encode_events([samples.sample(kind)]) for kind in get_args(Event)]


def cron(data: bytes) -> None:
    expression, _, zone = text_of(data).partition("\0")
    next_time(expression, zone, 1_700_000_000_000)


# ---- expressions and settings


def sql(data: bytes) -> None:
    """An expression, NUL, and a property string that it is evaluated with."""
    expression, _, given = data.partition(b"\0")
    compiled = _compile(expression.decode("utf-8", "replace"))
    if isinstance(compiled, str):
        return
    found = compiled.matches(b"\x02" + given)
    draft = RecordDraft(b"T", b"", given[:1000], 0, 0, samples.V4, samples.V4)
    if len(given) <= 1000:
        assert compiled.sieve(memoryview(samples.record(draft))) == found, "the sieve differs"


def settings_file(data: bytes) -> None:
    """A properties file: what is parsed is written and parsed again the same, and edited."""
    text = data.decode("utf-8", "replace")
    found = properties.parse(text)
    assert properties.parse(properties.edit("", found)) == found, "written and parsed differ"
    edited = properties.edit(text, {"brokerName": "a b", "neu": "=:#\\ x"})
    assert properties.parse(edited) == found | {"brokerName": "a b", "neu": "=:#\\ x"}


def settings(data: bytes) -> None:
    """Values of settings: refused by name, or formatted as a text that is read the same."""
    values = properties.parse(text_of(data))
    for kind, check in (
        (BrokerConfig, broker_settings.check),
        (StoreConfig, store_settings.check),
        (NameServerConfig, NameServerConfig.server_config),
    ):
        config: Any = load(kind, values)
        check(config)
        texts = to_texts(config)
        assert all(isinstance(each, str) for each in texts.values())
