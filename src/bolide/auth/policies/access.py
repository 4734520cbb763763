"""`PolicyAccess`: who signed a request, and whether the user's policies allow it."""

import logging
import os
from collections.abc import Iterable

import msgspec

from bolide.auth.access import Identity
from bolide.auth.permission_queries import Answer, Privileges, Question
from bolide.auth.policies.decisions import Need, reason_to_deny
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.model import (
    USER_PREFIX,
    Action,
    Resource,
    ResourceType,
    User,
)
from bolide.auth.policies.requirements import (
    internal_guarded,
    needs_of,
    needs_of_action,
    needs_of_found,
    needs_of_send,
)
from bolide.events import Listeners
from bolide.logs import ThrottledLog
from bolide.model.names import MAX_SYSTEM_TOPIC_LENGTH
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from bolide.protocol.signature import ACCESS_KEY, is_signed_by
from bolide.remoting.address import host_of

log = logging.getLogger(__name__)

ACL_2 = "ACL 2.0"
_REQUEST_OF = {Action.PUB: RequestCode.SEND_MESSAGE_V2, Action.SUB: RequestCode.PULL_MESSAGE}
"""The requests that a question about these actions stands for."""
_MAX_SHOWN = 300
"""Characters of a resource in a denial: a peer may name any."""
_MAX_DECISIONS = 10_000
"""Decisions that are kept; after that all are forgotten and made again."""


class PolicyAccess:
    """Access control by users and policies; an `Access`.

    Args:
        metadata: users and policies.
        cluster: the resource that requests about the server as a whole need.
        authorizes: whether policies decide; otherwise each user may do everything.
        unsigned: request codes that need no signature (`authenticationWhitelist`).
        unchecked: request codes that need no policy (`authorizationWhitelist`).
    """

    verifies_identity = True

    def __init__(
        self,
        metadata: Metadata,
        *,
        cluster: str,
        authorizes: bool,
        unsigned: Iterable[int] = (),
        unchecked: Iterable[int] = (),
    ) -> None:
        self.metadata = metadata
        self.on_changed: Listeners[[]] = Listeners()
        self._cluster = cluster
        self._authorizes = authorizes
        self._unsigned = frozenset(unsigned)
        self._unchecked = frozenset(unchecked)
        self._decisions: dict[tuple[str, str, Need], str | None] = {}
        self._wrong_signatures = ThrottledLog(log)  # by user, of which there are not many
        self._nobodys_secret = os.urandom(32)
        metadata.on_changed.add(self._forget)

    def check(self, request: Frame, peer: str) -> Identity:
        user = self._sender(request)
        if self._authorizes and request.code not in self._unchecked:
            self._authorize(user, request, host_of(peer))
        return Identity(None, peer) if user is None else Identity(user.username, peer, True)

    def check_found(self, request: Frame, peer: str, topic: str) -> None:
        """Raises NoPermission if the sender may not have a message of this topic."""
        if self._authorizes and request.code not in self._unchecked:
            needs = needs_of_found(request, topic)
            needs = internal_guarded(request.code, needs, self._cluster)
            self._require(self._sender(request), needs, host_of(peer))

    def secret_of(self, identity: Identity) -> bytes | None:
        if identity.access_key is None:
            return None
        user = self.metadata.users.get(identity.access_key)
        if user is None or not user.is_enabled:
            return self._nobodys_secret  # no signature matches
        return user.password.encode()

    def may_bring_code(self, identity: Identity) -> bool:
        if identity.access_key is None or not identity.is_verified:
            return False
        if self.is_super(identity):
            return True
        if not self._authorizes:
            return False
        need = Need(Resource(ResourceType.CLUSTER, self._cluster), frozenset({Action.UPDATE}))
        return self._decide(identity.access_key, need, host_of(identity.peer)) is None

    def may_send(self, identity: Identity, topic: str) -> bool:
        user = self.metadata.users.get(identity.access_key or "")
        if user is None or not user.is_enabled:
            return False
        if user.is_super or not self._authorizes or RequestCode.END_TRANSACTION in self._unchecked:
            return True
        source = host_of(identity.peer)
        return all(
            self._decide(user.username, need, source) is None for need in needs_of_send(topic)
        )

    async def run(self) -> None:
        await self.metadata.follow_files()

    def account_states(self, name: str) -> dict[str, object]:
        """A user and its policies without the password, for the audit."""
        user, acl = self.metadata.users.get(name), self.metadata.acls.get(name)
        return {
            f"User:{name}": None if user is None else msgspec.to_builtins(user.to_wire()),
            "policies": None if acl is None else msgspec.to_builtins(acl.to_wire()),
        }

    def is_super(self, identity: Identity) -> bool:
        """Whether an identity is a super user, who alone may make or change another."""
        user = self.metadata.users.get(identity.access_key or "")
        return user is not None and user.is_super

    def privileges(self, identity: Identity) -> Privileges:
        if identity.access_key is None:
            return Privileges(ACL_2, False, "is not authenticated")
        if self.is_super(identity):
            return Privileges(ACL_2, True, "may do everything")
        if not self._authorizes:
            return Privileges(ACL_2, True, "may do everything, since authorizationEnabled is false")
        return Privileges(ACL_2, False, "may do what its policies allow")

    def answer(self, identity: Identity, question: Question) -> Answer:
        username = question.username or identity.access_key
        if username is None:
            return Answer(False, "the sender is not authenticated")
        if username != identity.access_key:
            self._require_administrator(identity)
        user = self.metadata.users.get(username)
        if user is None:
            return Answer(False, f"User:{username} is not found.")
        if not user.is_enabled:
            return Answer(False, f"User:{username} is disabled.")
        if user.is_super or not self._authorizes:
            return Answer(True)
        source = question.source or host_of(identity.peer)
        for action in question.actions:
            if _REQUEST_OF.get(action) in self._unchecked:
                continue
            for need in needs_of_action(question.resource, action, self._cluster):
                reason = self._decide(username, need, source)
                if reason is not None:
                    words = " or ".join(each.value for each in Action if each in need.actions)
                    resource = str(need.resource)[:_MAX_SHOWN]
                    return Answer(False, f"{words} on {resource}: {reason}")
        return Answer(True)

    # ---- who

    def _sender(self, request: Frame) -> User | None:
        """The user who signed a request; None if it needs no signature and has no good one."""
        try:
            return self._verified(request)
        except NoPermission:
            if request.code in self._unsigned:
                return None
            raise

    def _verified(self, request: Frame) -> User:
        fields = request.fields or {}
        username = fields.get(ACCESS_KEY)
        if not username:
            raise NoPermission("username cannot be null.")
        user = self.metadata.users.get(username)
        if user is None:
            raise NoPermission(f"User:{username} is not found.")
        if not user.is_enabled:
            raise NoPermission(f"User:{username} is disabled.")
        if not is_signed_by(fields, request.body, user.password.encode(), request.version):
            self._wrong_signatures.warning(
                username, "the signature of request %s as %s is wrong", request.code, username
            )
            raise NoPermission("check signature failed.")
        return user

    # ---- what

    def _authorize(self, user: User | None, request: Frame, source: str) -> None:
        if user is None or not user.is_super:
            self._require(user, needs_of(request, self._cluster), source)

    def _require(self, user: User | None, needs: list[Need], source: str) -> None:
        if user is not None and user.is_super:
            return
        for need in needs:
            if user is None:
                raise NoPermission(
                    "Authorization failed. Please verify your access rights and try again."
                )
            reason = self._decide(user.username, need, source)
            if reason is not None:
                raise _denied(user.username, need, source, reason)

    def _decide(self, username: str, need: Need, source: str) -> str | None:
        key = username, source, need
        try:
            return self._decisions[key]
        except KeyError:
            pass
        reason = reason_to_deny(self.metadata.acls.get(username), need, source)
        if len(need.resource.name or "") <= MAX_SYSTEM_TOPIC_LENGTH:  # a peer may send megabytes
            if len(self._decisions) >= _MAX_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = reason
        return reason

    def _require_administrator(self, identity: Identity) -> None:
        if self.is_super(identity) or not self._authorizes:
            return
        need = Need(Resource(ResourceType.CLUSTER, self._cluster), frozenset({Action.GET}))
        name, source = identity.access_key or "", host_of(identity.peer)
        reason = self._decide(name, need, source)
        if reason is not None:
            raise _denied(name, need, source, reason)

    def _forget(self) -> None:
        self._decisions.clear()
        self.on_changed()


def _denied(username: str, need: Need, source: str, reason: str) -> NoPermission:
    """RocketMQ's text, for which tools look."""
    resource = str(need.resource)[:_MAX_SHOWN]
    return NoPermission(
        f"{USER_PREFIX}{username} has no permission to access {resource} from {source}, {reason}"
    )
