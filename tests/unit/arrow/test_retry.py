"""Which failures are worth a retry."""

import pytest

from bolide.arrow.retry import is_transient
from bolide.client.errors import NameServersUnreachable
from bolide.errors import BolideError
from bolide.remoting.errors import ConnectFailed, RemotingError, TlsFailed, UntrustedServer


def unreachable(cause: RemotingError) -> BolideError:
    failure = NameServersUnreachable(["a:1"], cause)
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize("cause", [ConnectFailed("a:1", "refused"), TlsFailed("a:1", "closed")])
def test_a_server_that_cannot_be_reached_is_tried_again(cause: RemotingError) -> None:
    assert is_transient(cause)
    assert is_transient(unreachable(cause))


def test_a_server_that_is_not_trusted_is_not_tried_again() -> None:
    cause = UntrustedServer("a:1", "its certificate has expired")
    assert not is_transient(cause)
    assert not is_transient(unreachable(cause))
    assert "its certificate has expired" in str(unreachable(cause))
