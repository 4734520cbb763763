"""The settings of single servers: what they are, what they mean, where they differ; and changes.

What a setting means is known from the declarations of Bolide's servers, of which most are those of
RocketMQ. A server of RocketMQ may have another default and does not tell when a change takes
effect.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from bolide.admin.servers import gather_by_key
from bolide.admin.settings import Server, Setting, all_settings, find, near
from bolide.errors import BolideError, ConfigError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change, read
from bolide.operations.errors import BadInput, Conflict, NotFound, NotSupported
from bolide.operations.servers.members import MemberState, Product, members_of
from bolide.operations.servers.replication import list_controllers
from bolide.operations.views import Failure, Page, failure_of, page_of

_FRESH = 10.0
_SECRET = "(secret)"  # noqa: S105  shown in place of one
_SECRET_WORDS = re.compile(r"password|secret|credential|token|initauthenticationuser", re.I)
_BEFORE_RESTART = "bolideBeforeRestart"
_OF_ONE_SERVER = re.compile(
    r"^(broker(Name|Id|IP\d|Role|ConfigPath)|listenPort|haListenPort|.*(Path|Root\w*|Dir)|"
    r"storePath.*|rocketmqHome|bindAddress|.*Identity|localHostName|ha(Master|Send)\w*Address|"
    r"controllerDLegerSelfId|metricsPromExporter(Host|Port)|startAcceptSendRequestTimeStamp)$"
)
"""Keys that have another value at each server."""


class ServerKind(StrEnum):
    """Which kind of server has a setting."""

    BROKER = "broker"
    NAME_SERVER = "namesrv"
    CONTROLLER = "controller"


class Shown(StrEnum):
    """Which settings are listed."""

    ALL = "all"
    CHANGED = "changed"
    """Those that differ from the default, and those that wait for a restart."""
    WAITING = "waiting"
    """Those that have another value after a restart."""


class TakesEffect(StrEnum):
    """When a change that a request makes takes effect."""

    AT_ONCE = "at once"
    AFTER_RESTART = "after a restart"
    FIXED = "fixed"
    """No request changes it; only its file, the environment or the command line does."""
    NEVER = "never"
    """The key is known, and has no effect in Bolide."""
    UNKNOWN = "unknown"
    """The server does not tell; RocketMQ reads many settings at its start only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetting:
    """One setting of one server."""

    key: str
    value: str
    """As the server writes it; a secret is never told."""
    in_force: str | None = None
    """The value that is in effect until a restart, if `value` waits for one."""
    default: str | None
    """None if it is not known. Of keys without effect it is RocketMQ's."""
    differs: bool | None
    """Whether the value is another one than the default; None if that is not known."""
    takes_effect: TakesEffect
    meaning: str = ""
    unit: str = ""
    allowed: str = ""
    """Bounds, or the possible values; empty if any text will do."""
    choices: list[str] = field(default_factory=list)
    no_effect: str = ""
    """Why it has no effect; empty if it has one."""
    is_secret: bool = False
    is_ours: bool = False
    """RocketMQ has no such setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPage:
    """Settings of one server, by key."""

    kind: ServerKind
    address: str
    product: Product | None
    changed: int
    """Settings of this server that differ from their default."""
    waiting: int
    """Settings that wait for a restart."""
    settings: Page[ServerSetting]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingServer:
    """A server whose settings can be shown."""

    kind: ServerKind
    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceValue:
    place: str
    address: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """A setting that not all brokers have the same value of."""

    key: str
    values: list[PlaceValue]
    meaning: str = ""
    is_expected: bool = False
    """It is another one at each broker by its nature: name, port, path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEffect:
    """What a change of a setting does."""

    kind: ServerKind
    address: str
    key: str
    before: str
    after: str
    default: str | None
    unit: str
    takes_effect: TakesEffect
    elsewhere: list[PlaceValue]
    """What other servers of the kind have, which are not changed."""
    warnings: list[str] = field(default_factory=list)


@read("/settings/servers")
async def list_setting_servers(cluster: Cluster) -> list[SettingServer]:
    """List the servers whose settings can be shown and changed: brokers that answer, NameServers,
    controllers."""
    members = (await members_of(cluster)).brokers
    controllers = (await list_controllers.function(cluster)).controllers
    return [
        *(
            SettingServer(kind=ServerKind.BROKER, name=f"{m.name} ({m.id})", address=m.address)
            for m in members
            if m.state is MemberState.UP
        ),
        *(
            SettingServer(kind=ServerKind.NAME_SERVER, name="NameServer", address=address)
            for address in cluster.admin.name_servers.addresses
        ),
        *(
            SettingServer(kind=ServerKind.CONTROLLER, name="controller", address=each.address)
            for each in controllers
            if each.answers
        ),
    ]


@read("/settings/differences")
async def list_differences(
    cluster: Cluster,
    *,
    search: str = "",
    expected: bool = False,
    page: int = 1,
    size: int = 50,
) -> Page[SettingDifference]:
    """List the settings that differ between the brokers that answer.

    Names, ports, paths and the like differ by their nature; `expected` lists these, too.
    """
    members = [m for m in (await members_of(cluster)).brokers if m.state is MemberState.UP]
    failures: list[Failure] = []

    async def texts(address: str) -> dict[str, str] | None:
        try:
            return (await _read(cluster, ServerKind.BROKER, address)).texts
        except BolideError as error:
            failures.append(failure_of(address, error))
            return None

    known = await gather_by_key([each.address for each in members], texts)
    tables = {m: table for m in members if (table := known[m.address]) is not None}
    found = []
    for key in sorted({key for table in tables.values() for key in table}):
        setting = _find(ServerKind.BROKER, key)
        if _is_secret(key, setting) or search.lower() not in key.lower():
            continue
        values = {m: table.get(key) for m, table in tables.items()}
        if len(set(values.values())) < 2:
            continue
        is_expected = bool(_OF_ONE_SERVER.match(key))
        if is_expected and not expected:
            continue
        found.append(
            SettingDifference(
                key=key,
                values=[
                    PlaceValue(
                        place=f"{m.name} ({m.id})",
                        address=m.address,
                        value=text if text is not None else setting.default if setting else "",
                    )
                    for m, text in values.items()
                ],
                meaning=setting.meaning if setting else "",
                is_expected=is_expected,
            )
        )
    return page_of(found, page=page, size=size, failures=failures)


@read("/settings/{kind}/{address}")
async def list_settings(  # noqa: PLR0913  what a list is asked for
    cluster: Cluster,
    *,
    kind: ServerKind,
    address: str,
    search: str = "",
    shown: Shown = Shown.ALL,
    page: int = 1,
    size: int = 50,
) -> SettingsPage:
    """List the settings of one server, with meaning, default, and when a change takes effect.

    `search` looks in keys, values and meanings. `address` is host:port, as `list_setting_servers`
    has it. Values of secrets are never told. Servers of RocketMQ do not tell what waits for a
    restart, and may have other defaults than those that are shown, which are Bolide's.
    """
    found = await _read(cluster, kind, address)
    everything = [_setting(found, key) for key in found.keys]
    words = search.lower().split()
    wanted = [
        each for each in everything if _is_shown(each, shown) and all(_has(each, w) for w in words)
    ]
    return SettingsPage(
        kind=kind,
        address=address,
        product=found.product,
        changed=sum(each.differs is True for each in everything),
        waiting=sum(each.in_force is not None for each in everything),
        settings=page_of(wanted, page=page, size=size),
    )


@read("/settings/{kind}/{address}/{key}")
async def show_setting(
    cluster: Cluster, *, kind: ServerKind, address: str, key: str
) -> ServerSetting:
    """Show one setting of one server; raises NotFound if the server has none of that key."""
    found = await _read(cluster, kind, address)
    return _setting(found, _known_key(found, key))


async def preview_setting(
    cluster: Cluster, *, kind: ServerKind, address: str, key: str, value: str
) -> SettingEffect:
    found = await _read(cluster, kind, address)
    key = _checked(found, key, value)
    before = _setting(found, key)
    warnings = []
    if before.takes_effect is TakesEffect.AFTER_RESTART:
        warnings.append("the server writes it to its file; it takes effect after a restart")
    elif before.takes_effect is TakesEffect.UNKNOWN:
        warnings.append(
            "a server of RocketMQ checks no value, and may read this one at its start only"
        )
    elif before.takes_effect is TakesEffect.NEVER:
        warnings.append(f"it has no effect: {before.no_effect}")
    if _OF_ONE_SERVER.match(key):
        warnings.append("by its nature it is another one at each server")
    return SettingEffect(
        kind=kind,
        address=address,
        key=key,
        before=before.value,
        after=value.strip(),
        default=before.default,
        unit=before.unit,
        takes_effect=before.takes_effect,
        elsewhere=await _elsewhere(cluster, kind, address, key),
        warnings=warnings,
    )


async def _setting_state(
    cluster: Cluster, *, kind: ServerKind, address: str, key: str
) -> ServerSetting:
    cluster.forget("settings/")
    return await show_setting.function(cluster, kind=kind, address=address, key=key)


@change(
    "PUT",
    "/settings/{kind}/{address}/{key}",
    target="setting {key} of the {kind} {address}",
    role=Role.ADMIN,
    preview=preview_setting,
    state=_setting_state,
)
async def change_setting(
    cluster: Cluster, *, kind: ServerKind, address: str, key: str, value: str
) -> ServerSetting:
    """Change a setting of one running server, which keeps it in its file.

    Returns the setting as the server has it then. Other servers are not changed. Paths, secrets
    and some others are fixed: no request changes them.
    """
    cluster.forget("settings/")
    found = await _read(cluster, kind, address)
    key = _checked(found, key, value)
    changes = {key: value.strip()}
    admin = cluster.admin
    match kind:
        case ServerKind.BROKER:
            await admin.brokers.update_config(address, changes)
        case ServerKind.NAME_SERVER:
            await admin.name_servers.update_config(changes, at=address)
        case ServerKind.CONTROLLER:
            await admin.controllers.update_config(address, changes)
    cluster.forget("settings/")
    return _setting(await _read(cluster, kind, address), key)


# ---- one server


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a server tells of its settings."""

    kind: ServerKind
    product: Product | None
    texts: dict[str, str]
    in_force: dict[str, str]

    @property
    def keys(self) -> list[str]:
        """Those that it lists, and those of ours that it leaves out because they are at their
        default."""
        own = set()
        if self.product is Product.BOLIDE:
            own = {each.key for each in _settings_of(self.kind) if each.is_ours}
        return sorted(self.texts.keys() | own, key=str.lower)


async def _read(cluster: Cluster, kind: ServerKind, address: str) -> _Told:
    if address not in (known := await _addresses(cluster, kind)):
        names = ", ".join(sorted(known)) or "none"
        raise NotFound(f"{address} is no {kind} of this cluster; known are {names}")
    key = f"settings/{kind}/{address}"
    return await cluster.shared(key, lambda: _ask(cluster, kind, address), seconds=_FRESH)


async def _addresses(cluster: Cluster, kind: ServerKind) -> set[str]:
    """So that no request goes to an address that somebody made up."""
    match kind:
        case ServerKind.BROKER:
            return {each.address for each in (await members_of(cluster)).brokers}
        case ServerKind.NAME_SERVER:
            return set(cluster.admin.name_servers.addresses)
        case ServerKind.CONTROLLER:
            found = (await list_controllers.function(cluster)).controllers
            return {each.address for each in found}


async def _ask(cluster: Cluster, kind: ServerKind, address: str) -> _Told:
    admin = cluster.admin
    ask: Callable[[str], Awaitable[dict[str, str]]]
    match kind:
        case ServerKind.BROKER:
            ask, peer = admin.brokers.config, admin.brokers.peer
        case ServerKind.NAME_SERVER:
            ask, peer = admin.name_servers.config_at, admin.name_servers.peer
        case ServerKind.CONTROLLER:
            ask, peer = admin.controllers.config, admin.controllers.peer
    texts = await ask(address)
    product = Product.BOLIDE if (await peer(address)).is_ours else Product.ROCKETMQ
    in_force: dict[str, str] = {}
    if kind is ServerKind.BROKER and product is Product.BOLIDE:
        figures = await admin.brokers.runtime(address)
        try:
            told = figures.get(_BEFORE_RESTART, "{}")
            in_force = msgspec.json.decode(told, type=dict[str, str])
        except msgspec.MsgspecError:
            in_force = {}
    return _Told(kind=kind, product=product, texts=texts, in_force=in_force)


def _settings_of(kind: ServerKind) -> list[Setting]:
    wanted = {Server(kind.value)} | ({Server.STORE} if kind is ServerKind.BROKER else set())
    return [each for each in all_settings() if each.server in wanted]


_by_key: dict[ServerKind, dict[str, Setting]] = {}


def _find(kind: ServerKind, key: str) -> Setting | None:
    """What is known of a key; a broker's own settings go before those of its store."""
    if kind not in _by_key:
        _by_key[kind] = {}
        for each in _settings_of(kind):
            _by_key[kind].setdefault(each.key, each)
    return _by_key[kind].get(key)


def _is_secret(key: str, setting: Setting | None) -> bool:
    return bool(_SECRET_WORDS.search(key)) if setting is None else setting.is_secret


def _setting(told: _Told, key: str) -> ServerSetting:
    setting = _find(told.kind, key)
    is_ours = told.product is Product.BOLIDE
    value = told.texts.get(key, setting.default if setting else "")
    if _is_secret(key, setting):
        return ServerSetting(
            key=key,
            value=_SECRET if value else "",
            default=None,
            differs=None,
            takes_effect=TakesEffect.FIXED,
            meaning=setting.meaning if setting else "",
            is_secret=True,
            is_ours=bool(setting and setting.is_ours),
        )
    if setting is None:
        return ServerSetting(
            key=key, value=value, default=None, differs=None, takes_effect=TakesEffect.UNKNOWN
        )
    option = setting.option
    return ServerSetting(
        key=key,
        value=value,
        in_force=told.in_force.get(key),
        default=setting.default,
        differs=setting.differs(value),
        takes_effect=TakesEffect(setting.in_effect) if is_ours else TakesEffect.UNKNOWN,
        meaning=setting.meaning,
        unit=setting.unit,
        allowed=setting.values,
        choices=setting.values.split(", ") if option and option.low is None and setting.values
        else [],
        no_effect=setting.no_effect if is_ours else "",
        is_ours=setting.is_ours,
    )  # fmt: skip


def _is_shown(setting: ServerSetting, shown: Shown) -> bool:
    match shown:
        case Shown.ALL:
            return True
        case Shown.CHANGED:
            return setting.differs is True or setting.in_force is not None
        case Shown.WAITING:
            return setting.in_force is not None


def _has(setting: ServerSetting, word: str) -> bool:
    return any(word in text.lower() for text in (setting.key, setting.value, setting.meaning))


def _known_key(told: _Told, key: str) -> str:
    """The key as the server spells it."""
    known = {each.lower(): each for each in told.keys}
    if found := known.get(key.lower()):
        return found
    for setting in find(key):
        if setting.key.lower() in known:
            return setting.key
    names = [each for each in near(key) if each.lower() in known]
    hint = f"; did you mean {' or '.join(names)}?" if names else ""
    raise NotFound(f"{key} is not a setting of this {told.kind}{hint}")


def _checked(told: _Told, key: str, value: str) -> str:
    """The key as the server spells it, if the value can be sent."""
    key = _known_key(told, key)
    setting = _find(told.kind, key)
    if _is_secret(key, setting):
        raise NotSupported(f"{key} is a secret: change it in the file of the server")
    if "\n" in value or "\r" in value:
        raise BadInput("value", "must be one line")
    if value.strip() == told.texts.get(key):
        raise Conflict(f"{key} is {value.strip()} already")
    if told.product is Product.BOLIDE and setting is not None:
        if setting.in_effect == TakesEffect.FIXED.value:
            raise NotSupported(
                f"{key} is fixed: change it in the file of the server, and restart it"
            )
        if setting.option is not None:
            try:
                setting.option.parse(value)
            except ConfigError as error:
                raise BadInput("value", str(error)) from error
    return key


async def _elsewhere(
    cluster: Cluster, kind: ServerKind, address: str, key: str
) -> list[PlaceValue]:
    servers = await list_setting_servers.function(cluster)
    others = [each for each in servers if each.kind is kind and each.address != address]

    async def value(server: SettingServer) -> str | None:
        try:
            told = await _read(cluster, kind, server.address)
        except BolideError:
            return None
        return _setting(told, key).value

    values = await gather_by_key(others, value)
    return [
        PlaceValue(place=server.name, address=server.address, value=text)
        for server, text in values.items()
        if text is not None
    ]
