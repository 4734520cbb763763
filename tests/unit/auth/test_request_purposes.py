from bolide.auth.request_purposes import PURPOSES
from bolide.protocol.codes import RequestCode


def test_every_request_has_a_purpose() -> None:
    assert set(RequestCode) == set(PURPOSES)
