import pytest

from bolide.auth.access import Identity, LocalAdministration, OpenAccess, is_loopback
from bolide.auth.choice import choose_access
from bolide.auth.settings import AccessSettings
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission

LOCAL = ["127.0.0.1:5000", "127.8.9.1:5000", "[::1]:5000", "[::ffff:127.0.0.1]:5000"]
REMOTE = [
    "10.0.0.9:5000", "[2001:db8::1]:5000", "[fe80::1%eth0]:5000", "[::ffff:10.0.0.9]:5000",
    "?", "", "0.0.0.0:1",
]  # fmt: skip


@pytest.mark.parametrize("peer", LOCAL)
def test_this_machine_is_known_by_its_loopback_address(peer: str) -> None:
    assert is_loopback(peer)


@pytest.mark.parametrize("peer", REMOTE)
def test_every_other_peer_is_remote(peer: str) -> None:
    assert not is_loopback(peer)


@pytest.mark.parametrize("peer", REMOTE)
def test_a_remote_peer_does_not_administer_and_is_told_what_to_do(peer: str) -> None:
    request = Frame(code=RequestCode.UPDATE_BROKER_CONFIG)
    with pytest.raises(NoPermission) as refused:
        LocalAdministration().check(request, peer)
    remark = refused.value.remark
    assert f"UPDATE_BROKER_CONFIG from {peer} is refused" in remark
    assert "turn on access control, or set allowRemoteAdmin=true" in remark


def test_a_refusal_is_logged_but_not_each_of_many(caplog: pytest.LogCaptureFixture) -> None:
    access, request = LocalAdministration(), Frame(code=RequestCode.UPDATE_BROKER_CONFIG)
    for port in range(100):
        with pytest.raises(NoPermission):
            access.check(request, f"10.0.0.9:{port}")
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "refused UPDATE_BROKER_CONFIG from 10.0.0.9:0: it is not on this machine"
    ]


@pytest.mark.parametrize("peer", LOCAL)
def test_this_machine_administers(peer: str) -> None:
    request = Frame(code=RequestCode.UPDATE_BROKER_CONFIG)
    assert LocalAdministration().check(request, peer) == Identity(None, peer)


def test_a_remote_peer_sends_and_unknown_requests_are_left_to_the_dispatcher() -> None:
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.GET_BROKER_CONFIG, 999_999):
        assert LocalAdministration().check(Frame(code=code), REMOTE[0]).peer == REMOTE[0]


def test_the_settings_choose() -> None:
    assert isinstance(choose_access(AccessSettings()), LocalAdministration)
    open_to_all = choose_access(AccessSettings(allow_remote_admin=True))
    assert type(open_to_all) is OpenAccess
    assert not open_to_all.verifies_identity
