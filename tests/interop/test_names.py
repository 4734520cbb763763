"""The names that the pinned releases know: each is on our pages, supported or with a reason."""

from collections import defaultdict
from collections.abc import Collection, Mapping

import pytest

from bolide.auth.settings import USUAL_CLASSES
from bolide.broker.settings.config import ALL_IGNORED, BrokerConfig, keys_of, load_settings
from bolide.config import Ignored
from bolide.errors import ConfigError
from bolide.namesrv.config import ALL_IGNORED as IGNORED_BY_NAME_SERVER
from bolide.namesrv.config import CONTROLLER_KEYS, NameServerConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.settings import THREADS
from bolide.store.config import StoreConfig
from docs.reference import PAGES
from docs.support import RENAMED_RESPONSES
from tests.interop import apache
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip

OLDEST = "4.9"
BASE = "org.apache.rocketmq."
CLASSES = {
    "RequestCode": ("remoting.protocol.RequestCode", "common.protocol.RequestCode"),
    "ResponseCode": ("remoting.protocol.ResponseCode", "common.protocol.ResponseCode"),
    "TopicAttributes": ("common.TopicAttributes",),
    "GroupAttributes": ("common.SubscriptionGroupAttributes",),
    "BrokerIdentity": ("common.BrokerIdentity",),
    "BrokerConfig": ("common.BrokerConfig",),
    "MessageStoreConfig": ("store.config.MessageStoreConfig",),
    "NettyServerConfig": ("remoting.netty.NettyServerConfig",),
    "NettyClientConfig": ("remoting.netty.NettyClientConfig",),
    "AuthConfig": ("auth.config.AuthConfig",),
    "NamesrvConfig": ("common.namesrv.NamesrvConfig",),
    "ControllerConfig": ("common.ControllerConfig",),
    "JraftConfig": ("common.JraftConfig",),
    "TlsSystemConfig": ("remoting.netty.TlsSystemConfig",),
}
"""Kinds of names, and the classes that have them, by release."""
SINCE_5 = {
    "TopicAttributes", "GroupAttributes", "BrokerIdentity",
    "AuthConfig", "ControllerConfig", "JraftConfig",
}  # fmt: skip

SHARED = ("NettyServerConfig", "NettyClientConfig", "TlsSystemConfig")
IN_BROKER_CONF = ("BrokerIdentity", "BrokerConfig", "MessageStoreConfig", "AuthConfig", *SHARED)
IN_NAMESRV_CONF = ("NamesrvConfig", "ControllerConfig", "JraftConfig", *SHARED)
BY_PROCESSORS = {"clientCallbackExecutorThreads"}
READ_BEFORE = {"tls.config.file"}
"""Keys that name another file, whose keys are loaded in their place."""

Names = Mapping[str, Mapping[str, str]]
"""By kind: names, and their numbers or defaults."""


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def names(java_module_bench: Bench, release: str) -> Names:
    return names_in(java_module_bench, release, CLASSES)


def names_in(bench: Bench, release: str, kinds: Collection[str]) -> Names:
    """The names of some kinds, by one Java process."""
    obtain_or_skip(release)
    asked = [f"{kind}={','.join(BASE + place for place in CLASSES[kind])}" for kind in kinds]
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in bench.program(release, "Names", *asked).wait(60):
        kind, _, rest = line.partition("\t")
        if kind in CLASSES:  # RocketMQ's logging prints here too
            name, _, value = rest.partition("\t")
            found[kind][name] = value
    return found


def test_every_class_was_found(names: Names, release: str) -> None:
    absent = set() if release == NEWEST else SINCE_5
    assert names.keys() == CLASSES.keys() - absent
    assert len(names["RequestCode"]) > 90
    assert len(names["BrokerConfig"]) > 75


def test_every_request_code_is_known(names: Names) -> None:
    assert not _different(names["RequestCode"], RequestCode.__members__)


def test_every_response_code_is_known(names: Names) -> None:
    assert not _different(names["ResponseCode"], {**ResponseCode.__members__, **RENAMED_RESPONSES})


def test_every_code_of_the_newest_4_9_client_is_known(java_module_bench: Bench) -> None:
    """Of 4.9.8 only the client side was published."""
    kinds = ("RequestCode", "ResponseCode")
    found = names_in(java_module_bench, apache.releases()[OLDEST].client, kinds)
    assert not _different(found["RequestCode"], RequestCode.__members__)
    known = {**ResponseCode.__members__, **RENAMED_RESPONSES}
    assert not _different(found["ResponseCode"], known)


def test_the_compatibility_page_has_every_code_and_attribute(names: Names) -> None:
    kinds = ("RequestCode", "ResponseCode", "TopicAttributes", "GroupAttributes")
    page = _page("compatibility.md")
    missing = {kind: _absent(names.get(kind, {}), page) for kind in kinds}
    assert not any(missing.values()), missing


@pytest.mark.parametrize(
    ("kinds", "pages"),
    [
        (IN_BROKER_CONF, ("broker-config.md", "store-config.md")),
        (IN_NAMESRV_CONF, ("namesrv-config.md", "controller-config.md")),
    ],
    ids=["broker.conf", "namesrv.conf"],
)
def test_the_settings_pages_have_every_key(
    names: Names, kinds: Collection[str], pages: Collection[str]
) -> None:
    text = "".join(map(_page, pages))
    missing = {kind: _absent(names.get(kind, {}), text) for kind in kinds}
    assert not any(missing.values()), missing


def test_strict_accepts_every_key_of_a_broker_conf(names: Names) -> None:
    known = keys_of(BrokerConfig) | keys_of(StoreConfig) | ALL_IGNORED.keys()
    assert not _keys(names, IN_BROKER_CONF) - known
    ignored = _keys(names, IN_BROKER_CONF) & ALL_IGNORED.keys()
    classes = {key: usual[0] for key, usual in USUAL_CLASSES.items() if key in ignored}
    load_settings(dict.fromkeys(ignored, "1") | classes, strict=True)
    for key in ("popReviveConcurrencies", "liteEventInterval"):
        with pytest.raises(ConfigError, match=key):
            load_settings({key: "1"}, strict=True)


def test_strict_accepts_every_key_of_a_namesrv_conf(names: Names) -> None:
    known = keys_of(NameServerConfig) | CONTROLLER_KEYS | IGNORED_BY_NAME_SERVER.keys()
    assert not _keys(names, IN_NAMESRV_CONF) - known


def test_keys_without_effect_have_rocketmqs_defaults(names: Names, release: str) -> None:
    if release != NEWEST:
        pytest.skip("the defaults are those of 5.x")
    different = {
        key: (item.default, default)
        for kind in IN_BROKER_CONF
        for key, default in names[kind].items()
        if default
        and key not in BY_PROCESSORS
        and (item := ALL_IGNORED.get(key))
        and _differs(item, default)
    }
    assert not different


def _differs(item: Ignored, default: str) -> bool:
    """Sizes of thread pools depend on the processors of the machine."""
    return item.reason != THREADS and item.default != default


def _keys(names: Names, kinds: Collection[str]) -> set[str]:
    return {key for kind in kinds for key in names.get(kind, {})} - READ_BEFORE


def _different(theirs: Mapping[str, str], ours: Mapping[str, int]) -> dict[str, str]:
    return {name: number for name, number in theirs.items() if ours.get(name) != int(number)}


def _absent(names: Collection[str], page: str) -> list[str]:
    return sorted(name for name in set(names) - READ_BEFORE if f"`{name}`" not in page)


def _page(name: str) -> str:
    (page,) = (write for path, write in PAGES.items() if path.name == name)
    return page()
