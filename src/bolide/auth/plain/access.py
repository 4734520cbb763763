"""`PlainAccess`: decides by the rules of ACL 1.0 and follows changes of their files."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import NoReturn

from bolide.auth.access import Identity
from bolide.auth.permission_queries import Answer, Privileges, Question
from bolide.auth.plain.accounts import Account
from bolide.auth.plain.changes import AclChanges
from bolide.auth.plain.files import AclFiles, AclPlaces
from bolide.auth.plain.needs import (
    Needs,
    needs_of,
    needs_of_action,
    needs_of_found,
    send_need,
)
from bolide.auth.plain.rules import Rules, denial
from bolide.auth.plain.yaml_nodes import BadAclFile
from bolide.auth.request_bodies import UnreadableBody
from bolide.events import Listeners
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from bolide.protocol.signature import ACCESS_KEY, is_signed_by
from bolide.remoting.address import host_of

log = logging.getLogger(__name__)

POLL_INTERVAL = 2.0
"""Seconds between two looks at the files."""
_SETTLE_TIME = 0.2
"""Seconds for which a changed file must stay as it is, so that no half-written one is read."""
_MAX_SHOWN = 64
_NO_KEY = "No accessKey is configured"
ACL_1 = "ACL 1.0"


class PlainAccess:
    """Access control by accounts and white lists; a `bolide.auth.access.Access`.

    A decision takes a few look-ups in dictionaries; what costs, the comparison of an address with
    white lists, is remembered by the rules.

    Args:
        cluster: the broker's own one, to whose topic of replies every account may send.

    Raises:
        ConfigError: there is no file, or one is invalid.
    """

    verifies_identity = True

    def __init__(
        self, places: AclPlaces, now: Callable[[], float] = time.time, *, cluster: str = ""
    ) -> None:
        self._cluster = cluster
        self.files = AclFiles(places)
        self._state = self.files.state()
        self.rules = self.files.require()
        self.on_changed: Listeners[[]] = Listeners()
        self.changes = AclChanges(self.files, now)
        self._lock = asyncio.Lock()  # one reader or writer of the files at a time

    def check(self, request: Frame, peer: str) -> Identity:
        """Say who sends a request that may be served. Raises NoPermission."""
        rules, host = self.rules, host_of(peer)
        if rules.is_white(host):
            return Identity(None, peer)
        fields = request.fields or {}
        key = fields.get(ACCESS_KEY)
        if key is None:
            _deny(_NO_KEY, peer)
        account = rules.accounts.get(key)
        if account is None:
            _deny(f"No acl config for {_shown(key)}", peer)
        is_verified = is_signed_by(fields, request.body, account.secret, request.version)
        if self._is_white(host, account):
            return Identity(key, peer, is_verified)
        if not is_verified:
            _deny(f"Check signature failed for accessKey={key}", peer)
        reason = self._denial(account, request)
        if reason is not None:
            _deny(reason, peer)
        return Identity(key, peer, is_verified)

    def _denial(self, account: Account, request: Frame) -> str | None:
        if account.is_unlimited:
            return None
        try:
            return denial(account, needs_of(request, self._cluster), request.code)
        except UnreadableBody as exc:
            return (
                f"No permission for request code={request.code}, accessKey={account.access_key}:"
                f" {exc}"
            )

    def secret_of(self, identity: Identity) -> bytes | None:
        """The secret of an account; None for the addresses of the global white list.

        Also where the white list of the account would do: a request of the same identity without a
        right signature must be checked again, since another request may lack the access key.
        """
        account = self.rules.accounts.get(identity.access_key or "")
        return None if account is None else account.secret

    def may_bring_code(self, identity: Identity) -> bool:
        account = self.rules.accounts.get(identity.access_key or "")
        return identity.is_verified and account is not None and account.is_admin

    def check_found(self, request: Frame, peer: str, topic: str) -> None:
        """Raises NoPermission if the sender may not do this with a message of this topic.

        It is read by its position (VIEW_MESSAGE_BY_ID), goes to the retry topic of a group, or is
        a half message whose transaction ends.
        """
        identity = self.check(request, peer)
        account = self.rules.accounts.get(identity.access_key or "")
        if account is None or self._is_white(host_of(peer), account):
            return  # an address of a white list, which may do everything
        if reason := denial(account, needs_of_found(request, topic), request.code):
            _deny(reason, peer)

    def may_send(self, identity: Identity, topic: str) -> bool:
        host = host_of(identity.peer)
        if self.rules.is_white(host):
            return True
        account = self.rules.accounts.get(identity.access_key or "")
        if account is None:
            return False
        needs = Needs(permissions=(send_need(topic),))
        return (
            self._is_white(host, account)
            or denial(account, needs, RequestCode.SEND_MESSAGE) is None
        )

    def privileges(self, identity: Identity) -> Privileges:
        if identity.access_key is None:
            power = "may do everything: its address is in the global white list"
            return Privileges(ACL_1, True, power)
        account = self.rules.accounts[identity.access_key]
        if self._is_white(host_of(identity.peer), account):
            wrong = "" if identity.is_verified else ", though its signature is wrong"
            power = f"may do everything: its address is in the white list of the account{wrong}"
            return Privileges(ACL_1, True, power)
        if account.is_unlimited:
            return Privileges(ACL_1, True, "may do everything")
        administers = "may administer, and " if account.is_admin else "may "
        return Privileges(ACL_1, False, f"{administers}use the topics and groups of its account")

    def answer(self, identity: Identity, question: Question) -> Answer:
        own = self.rules.accounts.get(identity.access_key or "")
        asked = question.username or identity.access_key
        if asked != identity.access_key and own is not None and not own.is_admin:
            raise NoPermission(f"only an admin may ask about another account than {own.access_key}")
        host = question.source or host_of(identity.peer)
        if self.rules.is_white(host):
            return Answer(True, f"{host} is in the global white list")
        if asked is None:
            return Answer(False, _NO_KEY)
        account = self.rules.accounts.get(asked)
        if account is None:
            return Answer(False, f"No acl config for {_shown(asked)}")
        if self._is_white(host, account):
            return Answer(True, f"{host} is in the white list of {asked}")
        for action in question.actions:
            reason = denial(account, *needs_of_action(question.resource, action))
            if reason is not None:
                return Answer(False, reason)
        return Answer(True)

    def _is_white(self, host: str, account: Account) -> bool:
        return bool(account.white_list) and self.rules.is_white(host, account)

    def account_states(self, name: str) -> dict[str, object]:
        """An account without its secret, for the audit; of an empty name, the global white list."""
        if not name:
            documents = self.rules.documents.values()
            addresses = [each for document in documents for each in document.white_addresses]
            return {"globalWhiteRemoteAddresses": addresses}
        account = self.rules.accounts.get(name)
        if account is None:
            return {name: None}
        members = dataclasses.asdict(account.entry)
        del members["secret_key"]
        return {name: members}

    async def run(self) -> None:
        """Follow changes of the files until cancelled."""
        problem = ""
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            try:
                await self.refresh()
            except Exception as exc:  # boundary: rules that nobody follows could not be revoked
                if str(exc) != problem:  # once, not every two seconds
                    log.exception("the access rules cannot be followed: %s", exc)  # noqa: TRY401
                problem = str(exc)
            else:
                problem = ""

    async def refresh(self) -> None:
        """Read the files if one has changed; invalid files leave the rules as they are."""
        async with self._lock:
            state = await asyncio.to_thread(self.files.state)
            if state == self._state:
                return
            await asyncio.sleep(_SETTLE_TIME)
            if state == await asyncio.to_thread(self.files.state):
                await self._load()

    async def change(self, edit: Callable[[], object]) -> None:
        """Run one of `changes` on a thread and put the new rules in force.

        Raises:
            AclChangeRefused: the edit is invalid, or its file cannot be written.
        """
        async with self._lock:
            await asyncio.to_thread(edit)
            await self._load()

    async def _load(self) -> None:
        # The state is taken first: what changes while the files are read is noticed next time.
        self._state = await asyncio.to_thread(self.files.state)
        try:
            rules = await asyncio.to_thread(self.files.load)
        except BadAclFile as exc:
            log.error("the access rules stay as they are: %s", exc)  # noqa: TRY400  one line
            return
        self._use(rules)

    def _use(self, rules: Rules) -> None:
        self.rules = rules
        log.info("access rules: %d accounts in %d files", len(rules.accounts), len(rules.documents))
        if not rules.accounts:
            log.error("no file has an account: only addresses of the white list are served")
        self.on_changed()


def _deny(reason: str, peer: str) -> NoReturn:
    raise NoPermission(f"{reason}, from {peer}")


def _shown(key: str) -> str:
    """An access key that anybody may have sent."""
    return key if len(key) <= _MAX_SHOWN and key.isprintable() else ascii(key[:_MAX_SHOWN])
