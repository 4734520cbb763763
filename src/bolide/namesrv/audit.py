"""What the audit log of a NameServer records of each request that administers."""

from typing import Any

import msgspec

from bolide.auth.audit import Describer, Subject, changed_settings, is_secret, target_of
from bolide.config import ConfigCell, secret_keys, to_texts
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.kv import KvConfig
from bolide.namesrv.routes import RouteTable
from bolide.protocol.bodies.audit import State
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.namesrv import KvHeader
from bolide.remoting.dispatch import Reply, Request


class Subjects:
    """Describes the requests to one NameServer."""

    def __init__(
        self, routes: RouteTable, kv: KvConfig, config: ConfigCell[NameServerConfig]
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config

    def describers(self) -> dict[int, Describer]:
        return {
            Code.WIPE_WRITE_PERM_OF_BROKER: _permission,
            Code.ADD_WRITE_PERM_OF_BROKER: _permission,
            Code.PUT_KV_CONFIG: self._kv_entry,
            Code.DELETE_KV_CONFIG: self._kv_entry,
            Code.DELETE_TOPIC_IN_NAMESRV: self._topic,
            Code.UPDATE_NAMESRV_CONFIG: self._settings,
        }

    def _kv_entry(self, request: Request[KvHeader]) -> Subject:
        namespace, key = request.header.namespace, request.header.key
        return Subject(
            {"namespace": namespace, "key": key},
            lambda: {key: self._kv.find(namespace, key)},
            secrets=frozenset({key} if is_secret(key) else ()),
        )

    def _topic(self, request: Request[Any]) -> Subject:
        topic = request.header.topic

        def state() -> State:
            route = self._routes.route(topic)
            queues = route.queue_datas if route is not None else []
            return {f"{topic} on {each.broker_name}": msgspec.to_builtins(each) for each in queues}

        return Subject(target_of(request.header), state)

    def _settings(self, request: Request[NoHeader]) -> Subject:
        return changed_settings(
            request, lambda: to_texts(self._config.value), secret_keys(NameServerConfig)
        )


def _permission(request: Request[Any]) -> Subject:
    def result(reply: Reply) -> State:
        """How many topics changed."""
        return dict(reply.header.to_fields()) if reply.header is not None else {}

    return Subject(target_of(request.header), result=result)
