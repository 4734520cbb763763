"""TLS contexts, and their reload when the files change."""

import logging
import os
import ssl
from pathlib import Path

import pytest

from bolide.errors import ConfigError
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.server import RemotingServer, ServerConfig
from bolide.remoting.tls import (
    ClientAuth,
    ClientTls,
    ReloadingContext,
    ServerTls,
    TlsMode,
    client_tls,
)
from tests.support.certificates import Pair, make_pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path, "server", serial=0xA1)


@pytest.fixture
def other(tmp_path: Path) -> Pair:
    return make_pair(tmp_path, "other", serial=0xB2)


def tls_of(pair: Pair) -> ServerTls:
    return ServerTls(certificate=pair.certificate, key=pair.key)


@pytest.mark.parametrize("mode", list(TlsMode))
def test_tls_is_active_with_a_certificate_unless_disabled(mode: TlsMode) -> None:
    with_certificate = ServerTls(mode=mode, certificate=Path("/c.pem"))
    assert with_certificate.is_active == (mode is not TlsMode.DISABLED)
    assert not ServerTls().is_active


def test_what_cannot_be_secured_as_wished_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set tls\.server\.certPath"):
        ServerTls(mode=TlsMode.ENFORCING)
    with pytest.raises(ConfigError, match=r"set tls\.server\.trustCertPath"):
        ServerTls(certificate=Path("/c.pem"), client_auth=ClientAuth.REQUIRE)


@pytest.mark.parametrize(
    ("wanted", "verify"),
    [
        (ClientAuth.NONE, ssl.CERT_NONE),
        (ClientAuth.OPTIONAL, ssl.CERT_OPTIONAL),
        (ClientAuth.REQUIRE, ssl.CERT_REQUIRED),
    ],
)
def test_a_server_asks_for_certificates_as_configured(
    pair: Pair, wanted: ClientAuth, verify: ssl.VerifyMode
) -> None:
    tls = ServerTls(
        certificate=pair.certificate, key=pair.key, trust=pair.certificate, client_auth=wanted
    )
    assert tls.context().verify_mode is verify
    assert tls.context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_one_file_may_hold_certificate_and_key(pair: Pair, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
    assert ServerTls(certificate=both).context()


def test_files_that_cannot_be_used_are_named(pair: Pair, other: Pair, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        ServerTls(certificate=missing).context()
    with pytest.raises(ConfigError, match=r"server\.pem.*other\.key"):
        ServerTls(certificate=pair.certificate, key=other.key).context()
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        ServerTls(certificate=pair.certificate, key=pair.key, trust=missing).context()
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        ClientTls(trust=missing).context()
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        ClientTls(certificate=missing).context()


def test_an_encrypted_key_needs_its_password_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "locked", password="open sesame")
    tls = ServerTls(certificate=pair.certificate, key=pair.key, key_password="open sesame")
    assert tls.context()
    assert ClientTls(
        certificate=pair.certificate, key=pair.key, key_password="open sesame"
    ).context()
    for wrong in (None, "open barley"):
        with pytest.raises(ConfigError, match=r"locked\.key.* its password is missing or wrong"):
            ServerTls(certificate=pair.certificate, key=pair.key, key_password=wrong).context()
        with pytest.raises(ConfigError, match=r"locked\.pem"):
            ClientTls(certificate=pair.certificate, key=pair.key, key_password=wrong).context()


def test_a_password_that_openssl_does_not_take_is_an_error_of_the_settings(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "locked", password="open sesame")
    with pytest.raises(ConfigError, match=r"locked\.pem"):
        ServerTls(certificate=pair.certificate, key=pair.key, key_password="x" * 2000).context()


def test_a_client_checks_certificate_and_host_name_unless_told_otherwise(pair: Pair) -> None:
    for checked in (ClientTls().context(), ClientTls(trust=pair.certificate).context()):
        assert checked.verify_mode is ssl.CERT_REQUIRED
        assert checked.check_hostname
    any_name = ClientTls(check_host=False).context()
    assert any_name.verify_mode is ssl.CERT_REQUIRED
    assert not any_name.check_hostname
    anybody = ClientTls(verify=False).context()
    assert anybody.verify_mode is ssl.CERT_NONE


def test_a_client_with_a_trust_file_does_not_trust_the_systems_authorities(pair: Pair) -> None:
    context = ClientTls(trust=pair.certificate).context()
    assert [found["serialNumber"] for found in context.get_ca_certs()] == [pair.serial]


def test_a_key_without_a_certificate_or_trust_without_a_check_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs its certificate"):
        ClientTls(key="client.key")
    with pytest.raises(ConfigError, match=r"has no effect with ClientTls\(verify=False\)"):
        ClientTls(trust="ca.pem", verify=False)


def test_paths_may_be_texts() -> None:
    assert ClientTls(trust="/ca.pem") == ClientTls(trust=Path("/ca.pem"))


def test_passwords_are_not_shown() -> None:
    shown = repr(ClientTls(key_password="hush")) + repr(ServerTls(key_password="hush"))
    assert "hush" not in shown


def test_the_arguments_of_a_client_turn_tls_on() -> None:
    assert client_tls(None) is None
    assert client_tls(False) is None
    assert client_tls(True) == ClientTls()
    assert client_tls(None, trust="ca.pem") == ClientTls(trust="ca.pem")
    assert client_tls(True, certificate="c.pem", key="c.key") == ClientTls(
        certificate="c.pem", key="c.key"
    )
    given = ClientTls(check_host=False)
    assert client_tls(given) is given


def test_files_beside_settings_that_would_ignore_them_are_refused() -> None:
    with pytest.raises(ConfigError, match="have no effect with tls=False"):
        client_tls(False, trust="ca.pem")
    with pytest.raises(ConfigError, match="as arguments of ClientTls"):
        client_tls(ClientTls(), trust="ca.pem")


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_a_server_that_requires_certificates_and_serves_plain_text_warns(
    pair: Pair, mode: TlsMode, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(
        mode=mode,
        certificate=pair.certificate,
        key=pair.key,
        trust=pair.certificate,
        client_auth=ClientAuth.REQUIRE,
    )
    RemotingServer(ServerConfig(tls=tls), Dispatcher())
    assert ("set tls.server.mode=enforcing" in caplog.text) == (mode is TlsMode.PERMISSIVE)


def test_unchanged_files_are_not_read_again(pair: Pair) -> None:
    context = ReloadingContext(tls_of(pair))
    before = context.current
    assert not context.check()
    assert context.current is before


def test_changed_files_give_a_new_context(pair: Pair, other: Pair) -> None:
    context = ReloadingContext(tls_of(pair))
    before = context.current
    pair.replace(other)
    assert context.check()
    assert context.current is not before
    assert not context.check()


def test_a_change_of_the_time_alone_is_enough(pair: Pair) -> None:
    context = ReloadingContext(tls_of(pair))
    os.utime(pair.certificate, ns=(1, 1))
    assert context.check()


def test_a_pair_that_does_not_fit_keeps_the_old_one_until_it_does(
    pair: Pair, other: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    context = ReloadingContext(tls_of(pair))
    before = context.current
    pair.certificate.write_bytes(other.certificate.read_bytes())
    with caplog.at_level(logging.WARNING):
        assert not context.check()
    assert context.current is before
    assert "keeping the old certificate" in caplog.text
    pair.key.write_bytes(other.key.read_bytes())
    assert context.check()


def test_a_pair_that_stays_broken_is_complained_of_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    context = ReloadingContext(tls_of(pair))
    pair.certificate.write_text("broken")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert not context.check()
    assert len(caplog.records) == 1


def test_a_file_that_vanishes_keeps_the_old_context(pair: Pair, other: Pair) -> None:
    context = ReloadingContext(tls_of(pair))
    before = context.current
    pair.certificate.unlink()
    assert not context.check()
    assert context.current is before
    pair.replace(other)
    assert context.check()


def test_the_files_of_a_client_are_read_again_too(pair: Pair, other: Pair) -> None:
    context = ReloadingContext(ClientTls(trust=pair.certificate))
    before = context.current
    pair.certificate.write_text("broken")
    assert not context.check()
    assert context.current is before
    pair.replace(other)
    assert context.check()
    assert context.current is not before


def test_a_server_does_not_start_with_a_broken_pair(pair: Pair) -> None:
    pair.key.write_text("broken")
    with pytest.raises(ConfigError):
        ReloadingContext(tls_of(pair))
