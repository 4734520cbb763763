"""The KV configuration: namespaces of keys and values in one small file (`KVConfigManager`)."""

import asyncio
import logging
from pathlib import Path

import msgspec

from bolide import snapshot
from bolide.auth.audit import is_secret
from bolide.errors import ConfigError
from bolide.protocol import fastjson
from bolide.protocol.errors import ProtocolError
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace of the ordered topics: topic to "brokerA:4;brokerB:4"."""


class _KvFile(fastjson.Struct):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KvConfig:
    """Keys and values by namespace; a change is visible only after the file is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = _load(path)
        self._writing = asyncio.Lock()  # one file, one writer

    def find(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def find_namespace(self, namespace: str) -> dict[str, str] | None:
        """Keys and values of a namespace; None if the namespace does not exist."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        await uninterrupted(self._put(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a key; a missing key is not an error."""
        await uninterrupted(self._delete(namespace, key))

    def log_all(self) -> None:
        """Write the whole table to the log."""
        log.info("KV config: %d namespaces", len(self._table))
        for namespace, items in self._table.items():
            for key, value in items.items():
                shown = _shown(key, value)
                log.info("KV config, namespace %s key %s value %s", namespace, key, shown)

    async def _put(self, namespace: str, key: str, value: str) -> None:
        async with self._writing:
            items = {**self._table.get(namespace, {}), key: value}
            await self._replace({**self._table, namespace: items})
        log.info("put KV config, namespace %s key %s value %s", namespace, key, _shown(key, value))

    async def _delete(self, namespace: str, key: str) -> None:
        async with self._writing:
            items = dict(self._table.get(namespace, {}))
            if items.pop(key, None) is None:
                return
            await self._replace({**self._table, namespace: items})
        log.info("deleted KV config, namespace %s key %s", namespace, key)

    async def _replace(self, table: dict[str, dict[str, str]]) -> None:
        data = fastjson.encode(_KvFile(table))
        await asyncio.to_thread(snapshot.replace, self.path, data)
        self._table = table


def _shown(key: str, value: str) -> str:
    return "(secret)" if is_secret(key) else value


def _load(path: Path) -> dict[str, dict[str, str]]:
    try:
        versions = snapshot.read(path)
    except OSError as exc:
        raise ConfigError(f"kvConfigPath={path}: {exc}") from exc
    for data in versions:
        try:
            return fastjson.decode(data, _KvFile).config_table
        except ProtocolError as exc:
            log.warning("a version of KV config %s is damaged: %s", path, exc)
    if versions:
        raise ConfigError(
            f"kvConfigPath={path}: the file and its backup are damaged; repair it, or move it away"
        )
    return {}
