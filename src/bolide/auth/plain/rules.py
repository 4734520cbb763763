"""The rules of all files together: decides by address, account and permission.

Rules never change; a changed file makes new ones, which drops what was remembered about addresses.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from bolide.auth.plain.accounts import Account, Permission
from bolide.auth.plain.addresses import Pattern, matches, parts_of
from bolide.auth.plain.documents import AclDocument
from bolide.auth.plain.needs import Needs
from bolide.model.names import TRACE_TOPIC, group_of_retry_topic, is_retry_topic
from bolide.protocol.codes import RequestCode as Code

log = logging.getLogger(__name__)

_SENDS = frozenset({Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE})
_MAX_HOSTS = 10_000
"""Addresses whose white-list decision is remembered."""


class Rules:
    """White lists and accounts; of an access key in several files, the first one counts.

    Args:
        documents: the contents of the files by path, in the order of their precedence.
    """

    def __init__(self, documents: Mapping[Path, AclDocument]) -> None:
        self.documents = dict(documents)
        self.accounts: dict[str, Account] = {}
        self.file_of: dict[str, Path] = {}
        self._white_list: tuple[Pattern, ...] = ()
        self._white_hosts: dict[tuple[str, str | None], bool] = {}
        for path, document in documents.items():
            self._white_list += document.white_list
            for account in document.accounts:
                self._add(account, path)

    def _add(self, account: Account, path: Path) -> None:
        key = account.access_key
        if key in self.accounts:
            log.warning("%s: accessKey=%s is in %s already", path, key, self.file_of[key])
            return
        self.accounts[key] = account
        self.file_of[key] = path

    def is_white(self, host: str, account: Account | None = None) -> bool:
        """Whether the global white list, or that of an account, has an address."""
        key = (host, None if account is None else account.access_key)
        found = self._white_hosts.get(key)
        if found is None:
            parts = parts_of(host)
            patterns = self._white_list if account is None else (account.white_list,)
            found = parts is not None and matches(patterns, parts)
            if len(self._white_hosts) >= _MAX_HOSTS:
                self._white_hosts.clear()
            self._white_hosts[key] = found
        return found


def denial(account: Account, needs: Needs, code: int | None = None) -> str | None:
    """Why an account may not do what a request needs; None if it may.

    The texts begin as those of RocketMQ 4.9.

    Args:
        code: the code of the request; None for a question that stands for several.
    """
    if code in _SENDS and set(needs.permissions) == {(TRACE_TOPIC, Permission.PUB)}:
        return None  # clients trace by themselves
    if needs.needs_admin and not account.is_admin:
        request = "" if code is None else f" for request code={code}"
        return f"Need admin permission{request}, but accessKey={account.access_key} is not"
    if account.is_unlimited:
        return None
    for resource, permission in needs.permissions:
        if not (account.is_admin and not resource) and not account.may(permission, resource):
            return (
                f"No default permission for {_shown(resource)}: accessKey={account.access_key}"
                f" needs {permission.name}"
            )
    return None


def _shown(resource: str) -> str:
    if is_retry_topic(resource):
        return f"group:{group_of_retry_topic(resource)}"
    return f"topic:{resource or '*'}"
