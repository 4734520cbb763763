"""What a server says about the permissions of a peer."""

import pytest

from bolide.auth.access import Access, LocalAdministration, OpenAccess
from bolide.auth.permission_queries import PermissionQueryHandlers, open_privileges
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.access import WhoAmIReply
from tests.support.access import client_of, serving
from tests.support.aio import on_loop

HERE, REMOTE = "127.0.0.1:5000", "10.0.0.1:5000"


@pytest.mark.parametrize(
    ("access", "peer", "may_administer", "power"),
    [
        (LocalAdministration(), HERE, True, "may administer, as everybody on this machine"),
        (LocalAdministration(), REMOTE, False, "may send and receive, but not administer"),
        (OpenAccess(), REMOTE, True, "may administer, as everybody"),
    ],
)
def test_without_access_control_the_address_decides(
    access: Access, peer: str, may_administer: bool, power: str
) -> None:
    assert open_privileges(access, peer) == ("none", may_administer, power)


@on_loop
async def test_a_peer_is_told_what_it_may_do() -> None:
    access = LocalAdministration()
    async with (
        serving(access, PermissionQueryHandlers(access)) as address,
        client_of(None) as client,
    ):
        reply = await client.call(address, RequestCode.BOLIDE_WHO_AM_I)
    found = WhoAmIReply.from_fields(reply.fields)
    assert (found.access_key, found.access_control) == (None, "none")
    assert found.power == "may administer, as everybody on this machine"
