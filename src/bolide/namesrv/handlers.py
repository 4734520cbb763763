"""Request handlers of a NameServer (`ClientRequestProcessor`, `DefaultRequestProcessor`)."""

import asyncio
import logging
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from bolide import properties
from bolide.auth.access import Access, is_loopback
from bolide.auth.permission_queries import Explaining
from bolide.auth.settings import AccessSettings
from bolide.config import (
    ConfigCell,
    fixed_keys,
    ignored_texts,
    options_of,
    secret_keys,
    to_texts,
)
from bolide.controller.config import ControllerConfig
from bolide.namesrv.config import ALL_IGNORED, CONTROLLER_KEYS, IGNORED, NameServerConfig
from bolide.namesrv.kv import ORDER_TOPICS, KvConfig
from bolide.namesrv.routes import (
    UNIT,
    UNIT_SUBSCRIPTION,
    BrokerKey,
    MinIdNotice,
    RouteTable,
    route_of_zone,
)
from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.registration import RegisterBrokerBody, decompress
from bolide.protocol.bodies.routes import KvTable, MemberGroupBody, TopicList, TopicRoute
from bolide.protocol.bodies.topics import MappedTopicConfigTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.namesrv import (
    AddWritePermReply,
    BrokerHeartbeatHeader,
    BrokerMemberGroupHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicHeader,
    KvHeader,
    KvListHeader,
    KvReply,
    PutKvHeader,
    QueryDataVersionHeader,
    QueryDataVersionReply,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    RegisterTopicHeader,
    RouteHeader,
    UnregisterBrokerHeader,
    WipeWritePermReply,
)
from bolide.protocol.refusals import (
    NoPermission,
    QueryNotFound,
    ServerError,
    TopicNotFound,
)
from bolide.remoting.address import host_of
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.live_settings import LiveSettings

log = logging.getLogger(__name__)

Notify = Callable[[Iterable[MinIdNotice]], None]

_V3_0_11, _V4_9_4, _V5_0_0 = 37, 401, 413
_SHORT_BODY = 64 * 1024
_FAQ = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
_ACCESS = options_of(AccessSettings)
# A namesrv.conf may hold the settings of a controller too.
_SECRETS = secret_keys(NameServerConfig, ALL_IGNORED) | secret_keys(ControllerConfig)
_FIXED = fixed_keys(NameServerConfig, ALL_IGNORED) | (
    fixed_keys(ControllerConfig) & CONTROLLER_KEYS
)


class OwnBrokers:
    """Keeps a peer from speaking for the brokers of others.

    Without a verified identity it speaks only for brokers that its host registered, and with one
    only for those of the cluster that it may update.
    """

    def __init__(self, access: Access, config: ConfigCell[NameServerConfig]) -> None:
        self._access = access
        self._config = config

    def require(self, request: Request[Any], links: Iterable[Hashable], what: str) -> None:
        """Raises NoPermission if brokers registered through connections of other hosts."""
        peer = request.connection.peer
        if (
            self._access.verifies_identity
            or self._config.value.allow_remote_admin
            or is_loopback(peer)
        ):
            return
        for link in links:
            if isinstance(link, Connection) and host_of(link.peer) != host_of(peer):
                raise NoPermission(
                    f"{what} from {peer} is refused: the broker registered from {link.peer}, and"
                    " without access control only its own host may speak for it. Turn on access"
                    " control, or set allowRemoteAdmin=true in the file of the NameServer"
                )

    def require_cluster(
        self, request: Request[Any], broker_name: str, cluster: str, clusters: Iterable[str]
    ) -> None:
        """Raises NoPermission if the broker belongs to another cluster, except to a super user.

        Args:
            cluster: the one that the request names, and that the sender may update.
            clusters: those in which the broker is registered.
        """
        others = [each for each in clusters if each != cluster]
        if not others or not self._access.verifies_identity:
            return
        identity = self._access.check(request.frame, request.connection.peer)
        if not (
            isinstance(self._access, Explaining) and self._access.privileges(identity).is_super
        ):
            raise NoPermission(
                f"broker {broker_name} belongs to cluster {', '.join(others)}, not to {cluster}:"
                " only a super user may move it. Give the broker another brokerName"
            )


class RouteHandlers:
    """Serves topic routes to clients."""

    def __init__(
        self,
        routes: RouteTable,
        kv: KvConfig,
        config: ConfigCell[NameServerConfig],
        clock: Callable[[], float],
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config
        self._clock = clock
        self._started = clock()

    @handles(RouteHeader, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def route(self, request: Request[RouteHeader]) -> Reply:
        header, config = request.header, self._config.value
        if config.need_wait_for_service:
            self._refuse_if_early(config)
        # Clients before 4.9.4 may know fastjson's dialect only and find no broker in standard JSON.
        standard = bool(header.accept_standard_json_only) or request.frame.version >= _V4_9_4
        if config.order_message_enable or header.zone_mode:
            route = self._special_route(header)
            return Reply(body=fastjson.encode(route, standard=standard))
        encoded = self._routes.encoded_route(header.topic, standard=standard)
        if encoded is None:
            raise _no_route(header.topic)
        return Reply(body=encoded)

    def _special_route(self, header: RouteHeader) -> TopicRoute:
        route = self._routes.route(header.topic)
        if route is None:
            raise _no_route(header.topic)
        if self._config.value.order_message_enable:
            route.order_topic_conf = self._kv.find(ORDER_TOPICS, header.topic)
        if header.zone_mode and header.zone_name and header.zone_name.strip():
            route = route_of_zone(route, header.zone_name)
        return route

    def _refuse_if_early(self, config: NameServerConfig) -> None:
        if self._clock() - self._started < config.wait_seconds_for_service:
            raise ServerError("name server not ready")


class BrokerHandlers:
    """Registers brokers and lists them."""

    def __init__(
        self,
        routes: RouteTable,
        kv: KvConfig,
        config: ConfigCell[NameServerConfig],
        notify: Notify,
        own: OwnBrokers,
    ) -> None:
        self._routes = routes
        self._own = own
        self._kv = kv
        self._config = config
        self._notify = notify
        self._decoding = asyncio.Semaphore(2)  # a task in a thread cannot be cancelled

    @handles(RegisterBrokerHeader, RequestCode.REGISTER_BROKER)
    async def register(self, request: Request[RegisterBrokerHeader]) -> Reply:
        header = request.header
        if header.body_crc32 and zlib.crc32(request.body) & 0x7FFF_FFFF != header.body_crc32:
            raise ServerError("crc32 not match")
        # Decoding a large body takes long; on a thread it does not delay other clients.
        if _is_slow_to_decode(request.body):
            async with self._decoding:
                body = await asyncio.to_thread(_decode_registration, request)
        else:
            body = _decode_registration(request)
        clusters = self._routes.clusters_of(header.broker_name)
        self._own.require_cluster(request, header.broker_name, header.cluster_name, clusters)
        registered = self._routes.register(header, body, request.connection)
        if registered is None:
            raise ServerError("register broker failed")
        self._notify(registered.notices)
        reply = RegisterBrokerReply(
            ha_server_addr=registered.ha_address, master_addr=registered.master_address
        )
        return Reply(header=reply, body=self._order_topics())

    def _order_topics(self) -> bytes:
        topics = self._kv.find_namespace(ORDER_TOPICS)
        if topics is None or not self._config.value.return_order_topic_config_to_broker:
            return b""
        return fastjson.encode(KvTable(table=topics))

    @handles(UnregisterBrokerHeader, RequestCode.UNREGISTER_BROKER)
    def unregister(self, request: Request[UnregisterBrokerHeader]) -> Reply:
        header = request.header
        key = BrokerKey(header.cluster_name, header.broker_addr)
        self._own.require(request, self._routes.links_of(key.address), f"unregistration of {key}")
        clusters = self._routes.clusters_of(header.broker_name)
        self._own.require_cluster(request, header.broker_name, header.cluster_name, clusters)
        self._notify(self._routes.unregister(key, header.broker_name))
        return Reply()

    @handles(QueryDataVersionHeader, RequestCode.QUERY_DATA_VERSION, max_body=_SHORT_BODY)
    def data_version(self, request: Request[QueryDataVersionHeader]) -> Reply:
        key = BrokerKey(request.header.cluster_name, request.header.broker_addr)
        current = fastjson.decode(request.body or b"{}", DataVersion)
        known = self._routes.data_version(key)
        self._routes.touch(key)
        body = fastjson.encode(known) if known is not None else b""
        return Reply(header=QueryDataVersionReply(changed=known != current), body=body)

    @handles(BrokerHeartbeatHeader, RequestCode.BROKER_HEARTBEAT)
    def heartbeat(self, request: Request[BrokerHeartbeatHeader]) -> Reply:
        self._routes.touch(BrokerKey(request.header.cluster_name, request.header.broker_addr))
        return Reply()

    @handles(BrokerMemberGroupHeader, RequestCode.GET_BROKER_MEMBER_GROUP)
    def member_group(self, request: Request[BrokerMemberGroupHeader]) -> Reply:
        group = self._routes.member_group(request.header.cluster_name, request.header.broker_name)
        return Reply(body=fastjson.encode(MemberGroupBody(broker_member_group=group)))

    @handles(NoHeader, RequestCode.GET_BROKER_CLUSTER_INFO)
    def cluster_info(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=fastjson.encode(self._routes.cluster_info()))

    @handles(BrokerNameHeader, RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    def wipe_write_permission(self, request: Request[BrokerNameHeader]) -> Reply:
        count = self._routes.wipe_write_permission(request.header.broker_name)
        log.info("%s wiped the write permission of %s", request.connection.peer, request.header)
        return Reply(header=WipeWritePermReply(count))

    @handles(BrokerNameHeader, RequestCode.ADD_WRITE_PERM_OF_BROKER)
    def add_write_permission(self, request: Request[BrokerNameHeader]) -> Reply:
        count = self._routes.add_write_permission(request.header.broker_name)
        log.info("%s added the write permission of %s", request.connection.peer, request.header)
        return Reply(header=AddWritePermReply(count))


class TopicHandlers:
    """Lists topics and changes their routes."""

    def __init__(
        self, routes: RouteTable, config: ConfigCell[NameServerConfig], own: OwnBrokers
    ) -> None:
        self._routes = routes
        self._config = config
        self._own = own

    @handles(NoHeader, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def all_topics(self, request: Request[NoHeader]) -> Reply:
        if not self._config.value.enable_all_topic_list:
            raise ServerError("disable")
        return _topics(self._routes.topic_names())

    @handles(ClusterHeader, RequestCode.GET_TOPICS_BY_CLUSTER)
    def topics_of_cluster(self, request: Request[ClusterHeader]) -> Reply:
        self._refuse_if_disabled()
        return _topics(self._routes.topic_names_of_cluster(request.header.cluster))

    @handles(NoHeader, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def system_topics(self, request: Request[NoHeader]) -> Reply:
        return _topics(self._routes.system_topic_names())

    @handles(NoHeader, RequestCode.GET_UNIT_TOPIC_LIST)
    def unit_topics(self, request: Request[NoHeader]) -> Reply:
        self._refuse_if_disabled()
        return _topics(self._routes.topic_names_by_flag(have=UNIT))

    @handles(NoHeader, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def unit_subscription_topics(self, request: Request[NoHeader]) -> Reply:
        self._refuse_if_disabled()
        return _topics(self._routes.topic_names_by_flag(have=UNIT_SUBSCRIPTION))

    @handles(NoHeader, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def unit_subscription_only_topics(self, request: Request[NoHeader]) -> Reply:
        self._refuse_if_disabled()
        return _topics(self._routes.topic_names_by_flag(have=UNIT_SUBSCRIPTION, lack=UNIT))

    @handles(RegisterTopicHeader, RequestCode.REGISTER_TOPIC_IN_NAMESRV, max_body=_SHORT_BODY)
    def register_topic(self, request: Request[RegisterTopicHeader]) -> Reply:
        route = fastjson.decode(request.body or b"{}", TopicRoute)
        if route.queue_datas:
            for each in route.queue_datas:
                links = self._routes.links_of_group(each.broker_name)
                self._own.require(request, links, f"a route of {each.broker_name}")
            self._routes.set_topic(request.header.topic, route.queue_datas)
        return Reply()

    @handles(DeleteTopicHeader, RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def delete_topic(self, request: Request[DeleteTopicHeader]) -> Reply:
        self._routes.delete_topic(request.header.topic, request.header.cluster_name)
        return Reply()

    def _refuse_if_disabled(self) -> None:
        if not self._config.value.enable_topic_list:
            raise ServerError("disable")


class KvHandlers:
    """Reads and writes the KV configuration."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    @handles(PutKvHeader, RequestCode.PUT_KV_CONFIG)
    async def put(self, request: Request[PutKvHeader]) -> Reply:
        header = request.header
        await self._kv.put(header.namespace, header.key, header.value)
        return Reply()

    @handles(KvHeader, RequestCode.GET_KV_CONFIG)
    def show(self, request: Request[KvHeader]) -> Reply:
        namespace, key = request.header.namespace, request.header.key
        value = self._kv.find(namespace, key)
        if value is None:
            raise QueryNotFound(f"No config item, Namespace: {namespace} Key: {key}")
        return Reply(header=KvReply(value))

    @handles(KvHeader, RequestCode.DELETE_KV_CONFIG)
    async def delete(self, request: Request[KvHeader]) -> Reply:
        await self._kv.delete(request.header.namespace, request.header.key)
        return Reply()

    @handles(KvListHeader, RequestCode.GET_KVLIST_BY_NAMESPACE)
    def list_namespace(self, request: Request[KvListHeader]) -> Reply:
        table = self._kv.find_namespace(request.header.namespace)
        if table is None:
            raise QueryNotFound(f"No config item, Namespace: {request.header.namespace}")
        return Reply(body=fastjson.encode(KvTable(table=table)))


class ConfigHandlers:
    """Shows the settings and changes them at run time."""

    def __init__(self, config: ConfigCell[NameServerConfig], ignored: Mapping[str, str]) -> None:
        self._settings = LiveSettings(
            config, ignored_texts(IGNORED, ignored), secrets=_SECRETS, fixed=_FIXED
        )

    @handles(NoHeader, RequestCode.GET_NAMESRV_CONFIG)
    def show(self, request: Request[NoHeader]) -> Reply:
        texts = shown_texts(self._settings.config, self._settings.others)
        return Reply(body=properties.render(texts).encode())

    @handles(NoHeader, RequestCode.UPDATE_NAMESRV_CONFIG, max_body=_SHORT_BODY)
    async def update(self, request: Request[NoHeader]) -> Reply:
        await self._settings.update(request.body, request.connection.peer)
        return Reply()


def shown_texts(config: NameServerConfig, others: dict[str, str]) -> dict[str, str]:
    """Texts of all of RocketMQ's keys, and of Bolide's own keys not at their default.

    The keys of access control are RocketMQ's, but its NameServer has none.
    """
    options = options_of(NameServerConfig)
    texts = to_texts(config)
    hidden = {
        key
        for key, found in options.items()
        if (found.ours or key in _ACCESS) and getattr(config, found.field) == found.default
    }
    return others | {key: text for key, text in texts.items() if key not in hidden}


def _is_slow_to_decode(body: bytes) -> bool:
    """Whether a registration is large, or compressed: it may expand a thousandfold."""
    return len(body) > _SHORT_BODY or body[:1] not in {b"", b"{"}


def _decode_registration(request: Request[RegisterBrokerHeader]) -> RegisterBrokerBody:
    """Decode the body in the format of the broker's version."""
    version, body = request.frame.version, request.body
    if not body:
        return RegisterBrokerBody()
    if version < _V3_0_11:
        topics = fastjson.decode(body, MappedTopicConfigTable)
        return RegisterBrokerBody(topic_config_serialize_wrapper=topics, filter_server_list=None)
    # 5.x brokers compress without saying so in the header; JSON begins with a brace.
    if request.header.compressed or body[:1] != b"{":
        return decompress(body, with_mapping=version >= _V5_0_0)
    return fastjson.decode(body, RegisterBrokerBody)


def _topics(topics: TopicList) -> Reply:
    return Reply(body=fastjson.encode(topics))


def _no_route(topic: str) -> TopicNotFound:
    # The first sentence is RocketMQ's own message, which users search for.
    return TopicNotFound(
        f"No topic route info in name server for the topic: {topic}\n"
        f"See {_FAQ} for further details."
    )


HANDLERS: tuple[type, ...] = (
    RouteHandlers,
    BrokerHandlers,
    TopicHandlers,
    KvHandlers,
    ConfigHandlers,
)
"""Classes whose `handles` decorators declare the served requests."""
