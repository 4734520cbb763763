"""All settings of all servers: what they mean, when a change takes effect, what they are now.

The facts are those with which the servers declare their settings; the reference pages are made of
the same texts.
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from bolide.admin.client import AdminClient
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.settings.without_effect import IGNORED as IGNORED_BY_BROKER
from bolide.broker.settings.without_effect import IGNORED_IN_FILES
from bolide.config import Ignored, Option, options_of, variable
from bolide.controller.config import ALL_IGNORED as IGNORED_BY_CONTROLLER
from bolide.controller.config import ControllerConfig
from bolide.errors import BolideError, ConfigError
from bolide.namesrv.config import ALL_IGNORED as IGNORED_BY_NAME_SERVER
from bolide.namesrv.config import NameServerConfig
from bolide.store import config as store_config
from bolide.store.config import StoreConfig

_SECRET = "(secret)"  # noqa: S105  shown in place of one
_NEAR = 3
_CONCURRENT = 16
"""Servers that are asked at the same time."""

_Ask = Callable[[str], Awaitable[dict[str, str]]]


class Server(StrEnum):
    """What a setting belongs to. The settings of a store are in the file of its broker."""

    BROKER = "broker"
    STORE = "store"
    NAME_SERVER = "namesrv"
    CONTROLLER = "controller"

    @property
    def file(self) -> str:
        is_of_broker = self in {Server.BROKER, Server.STORE}
        return "broker.conf" if is_of_broker else f"{self.value}.conf"


@dataclass(frozen=True, slots=True)
class _Declarations:
    kind: type[Any]
    ignored: Mapping[str, Ignored]
    environment: str


_DECLARATIONS = {
    Server.BROKER: _Declarations(
        BrokerConfig, IGNORED_BY_BROKER | IGNORED_IN_FILES, "BOLIDE_BROKER"
    ),
    Server.STORE: _Declarations(StoreConfig, store_config.IGNORED, "BOLIDE_BROKER"),
    Server.NAME_SERVER: _Declarations(NameServerConfig, IGNORED_BY_NAME_SERVER, "BOLIDE_NAMESRV"),
    Server.CONTROLLER: _Declarations(ControllerConfig, IGNORED_BY_CONTROLLER, "BOLIDE_CONTROLLER"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A key of one kind of server."""

    server: Server
    key: str
    default: str
    """Of a key without effect, RocketMQ's."""
    meaning: str = ""
    unit: str = ""
    values: str = ""
    """Bounds, or the possible values."""
    in_effect: str
    no_effect: str = ""
    """Why it has no effect here; empty if it has one."""
    aliases: tuple[str, ...] = ()
    variable: str = ""
    """Of the environment."""
    is_ours: bool = False
    """RocketMQ has no such key."""
    is_secret: bool = False
    option: Option | None = None

    def differs(self, text: str) -> bool:
        """Whether a server has another value than the default, however it is written."""
        if self.option is None or self.is_secret:
            return text != self.default
        try:
            return self.option.parse(text) != self.option.default
        except ConfigError:  # a value of RocketMQ that is none here
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A running server, and what it says its settings are."""

    server: Server
    name: str
    address: str
    texts: Mapping[str, str]

    def value_of(self, setting: Setting) -> str | None:
        """The value of a setting; None if the server does not tell one.

        Servers of ours do not list keys of our own that are at their default.
        """
        if self.server is not _lister(setting.server):
            return None
        if setting.is_secret:
            return _SECRET if setting.key in self.texts else None
        return self.texts.get(setting.key)


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every key of every kind of server, those without effect included."""
    return tuple(setting for server in Server for setting in _settings_of(server))


def find(key: str) -> list[Setting]:
    """The settings of that key or older spelling, in any case; of several servers, all."""
    folded = key.lower()
    return [
        each
        for each in all_settings()
        if folded in {each.key.lower(), *(alias.lower() for alias in each.aliases)}
    ]


def near(key: str) -> list[str]:
    """Keys that a misspelt one may stand for, the nearest first."""
    known = {name.lower(): name for each in all_settings() for name in (*each.aliases, each.key)}
    return [known[each] for each in difflib.get_close_matches(key.lower(), known, n=_NEAR)]


async def read_places(
    admin: AdminClient, cluster: str | None = None
) -> tuple[list[Place], list[BolideError]]:
    """The settings of brokers, of one cluster or all, their controllers, and all NameServers.

    Servers that do not answer are left out; their errors are returned.

    Raises:
        BolideError: no NameServer answers, or there is no such cluster.
    """
    slots = asyncio.Semaphore(_CONCURRENT)

    async def read(server: Server, name: str, address: str, ask: _Ask) -> Place | BolideError:
        try:
            async with slots:
                texts = await ask(address)
        except BolideError as exc:
            return exc
        return Place(server=server, name=name, address=address, texts=texts)

    brokers = await asyncio.gather(*(
        read(Server.BROKER, name, address, admin.brokers.config)
        for name, address in await _brokers(admin, cluster)
    ))  # fmt: skip
    kind, controller = Server.NAME_SERVER, Server.CONTROLLER
    others = await asyncio.gather(
        *(
            read(controller, controller.value, address, admin.controllers.config)
            for address in _controllers([each for each in brokers if isinstance(each, Place)])
        ),
        *(
            read(kind, kind.value, address, admin.name_servers.config_at)
            for address in admin.name_servers.addresses
        ),
    )
    found = [*brokers, *others]
    places = [each for each in found if isinstance(each, Place)]
    return places, [each for each in found if isinstance(each, BolideError)]


def _controllers(brokers: list[Place]) -> list[str]:
    """The addresses of the controllers that brokers name."""
    texts = (each.texts for each in brokers if each.texts.get("enableControllerMode") == "true")
    lists = (each.get("controllerAddr", "").split(";") for each in texts)
    return sorted({address.strip() for each in lists for address in each if address.strip()})


async def _brokers(admin: AdminClient, cluster: str | None) -> list[tuple[str, str]]:
    if cluster is not None:
        brokers = await admin.clusters.brokers(cluster)
    else:
        table = (await admin.clusters.info()).broker_addr_table
        brokers = [table[name] for name in sorted(table)]
    return [
        (each.broker_name if broker_id == 0 else f"{each.broker_name} (slave {broker_id})", address)
        for each in brokers
        for broker_id, address in sorted(each.broker_addrs.items())
    ]


def _lister(server: Server) -> Server:
    """The kind of server that lists a setting."""
    return Server.BROKER if server is Server.STORE else server


def _settings_of(server: Server) -> Iterator[Setting]:
    declared = _DECLARATIONS[server]
    for key, found in options_of(declared.kind).items():
        yield Setting(
            server=server,
            key=key,
            default=default_text(found),
            meaning=found.doc,
            unit=found.unit or "",
            values=values_text(found),
            in_effect=in_effect(found),
            aliases=found.aliases,
            variable=variable(declared.environment, found),
            is_ours=found.ours,
            is_secret=found.secret,
            option=found,
        )
    for key, item in declared.ignored.items():
        yield Setting(
            server=server,
            key=key,
            default=_SECRET if item.secret else item.default,
            in_effect="never",
            no_effect=item.reason,
            is_secret=item.secret,
        )


# ---- texts about one setting, for this and for the reference pages


def default_text(found: Option) -> str:
    """The default as a file has it, the same on every machine."""
    if found.key == "rocketmqHome":  # it depends on the environment of who asks
        return "$ROCKETMQ_HOME"
    text = found.format(found.default)
    return text.replace(str(Path.home()), "~", 1) if isinstance(found.default, Path) else text


def values_text(found: Option) -> str:
    """The bounds of a number, or the possible values; empty if any text will do."""
    if found.low is not None:
        high = f"{found.high:.0f}" if found.high is not None else ""
        return f"{found.low:.0f} to {high}" if high else f"{found.low:.0f} or more"
    return ", ".join(members(found))


def members(found: Option) -> list[str]:
    """The possible values of a setting that has few."""
    if found.kind is bool:
        return ["true", "false"]
    return [str(each.value) for each in getattr(found.kind, "__members__", {}).values()]


def in_effect(found: Option) -> str:
    """When a change by a request takes effect; fixed: no request makes it."""
    if found.fixed:
        return "fixed"
    return "at once" if found.live else "after a restart"
