"""Users, policies and signed requests for tests of access control."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bolide.auth.access import Access, AccessGate, Identity, OpenAccess
from bolide.auth.choice import choose_access
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.model import Acl, User
from bolide.auth.settings import AccessSettings
from bolide.protocol.bodies import access as wire
from bolide.protocol.frame import Frame
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.server import RemotingServer, ServerConfig
from bolide.remoting.signing import Signer

ROOT, ROOT_PASSWORD = "root", "root-secret"
FIRST_USER = f'{{"username":"{ROOT}","password":"{ROOT_PASSWORD}"}}'
INNER = f'{{"accessKey":"{ROOT}","secretKey":"{ROOT_PASSWORD}"}}'
CLUSTER = "DefaultCluster"


def secret_of(name: str) -> str:
    """The password of a user that `give` made."""
    return ROOT_PASSWORD if name == ROOT else f"{name}-secret"


def access_in(directory: Path, **settings: Any) -> PolicyAccess:
    """Access control whose first user is the super user root; policies decide."""
    given: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": FIRST_USER,
    }
    chosen = AccessSettings(**given | settings)
    access = choose_access(chosen, directory=directory, cluster=CLUSTER)
    assert isinstance(access, PolicyAccess)
    return access


def entry(
    resource: str, actions: str, decision: str = "Allow", sources: str = ""
) -> wire.PolicyEntry:
    return wire.PolicyEntry(
        resource=resource,
        actions=actions.split(","),
        source_ips=sources.split(",") if sources else None,
        decision=decision,
    )


def acl(name: str, *entries: wire.PolicyEntry, kind: str = "Custom") -> Acl:
    policy = wire.Policy(policy_type=kind, entries=list(entries))
    return Acl.of(wire.Acl(subject=f"User:{name}", policies=[policy]))


async def give(metadata: Metadata, name: str, *entries: wire.PolicyEntry) -> None:
    """Create a user with policies."""
    await metadata.create_user(User(name, secret_of(name)))
    if entries:
        await metadata.update_acl(acl(name, *entries))


def signed(frame: Frame, name: str, secret: str | None = None) -> Frame:
    """A request, signed by a user that `give` made."""
    Signer(name, secret or secret_of(name)).before("", frame)
    return frame


@asynccontextmanager
async def serving(access: Access, *handlers: object) -> AsyncIterator[str]:
    """The address of a server behind a gate."""
    dispatcher = Dispatcher(*handlers, gate=AccessGate(access))
    async with RemotingServer(ServerConfig(host="127.0.0.1", port=0), dispatcher) as server:
        yield server.address


def client_of(name: str | None) -> RemotingClient:
    """A client that signs as a user, or not at all."""
    hooks = [] if name is None else [Signer(name, secret_of(name))]
    return RemotingClient(hooks=hooks)


class EverybodyIsAdmin(OpenAccess):
    """Takes every peer for an administrator, for tests of what needs one."""

    verifies_identity = True

    def check(self, request: Frame, peer: str) -> Identity:
        return Identity("admin", peer, is_verified=True)

    def may_bring_code(self, identity: Identity) -> bool:
        return True
