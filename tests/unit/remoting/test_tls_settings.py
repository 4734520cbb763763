"""TLS settings under RocketMQ's keys, of brokers and NameServers alike."""

from pathlib import Path

import pytest

from bolide.broker.settings.config import BrokerConfig
from bolide.config import load, to_texts
from bolide.errors import ConfigError
from bolide.namesrv.config import NameServerConfig
from bolide.remoting.tls import ClientAuth
from bolide.remoting.tls_settings import TlsSettings, tls_texts


def loaded(**texts: str) -> TlsSettings:
    return load(TlsSettings, texts, strict=True)


@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
def test_servers_call_others_in_plain_text_unless_told(kind: type[TlsSettings]) -> None:
    assert kind().client_tls() is None
    tls = load(kind, {"tls.enable": "true"}).client_tls()
    assert tls is not None
    assert (tls.verify, tls.check_host, tls.trust) == (True, True, None)


@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
def test_every_key_reaches_the_calls_of_a_server(kind: type[TlsSettings]) -> None:
    texts = {
        "useTLS": "true",
        "tls.client.trustCertPath": "/ca.pem",
        "tls.client.certPath": "/c.pem",
        "tls.client.keyPath": "/c.key",
        "tls.client.keyPassword": "hush",
        "tls.client.checkHost": "false",
        "tls.client.serverName": "mq.example",
        "tls.protocols": "TLSv1.3",
    }
    tls = load(kind, texts, strict=True).client_tls()
    assert tls is not None
    assert (tls.trust, tls.certificate, tls.key) == (
        Path("/ca.pem"),
        Path("/c.pem"),
        Path("/c.key"),
    )
    assert (tls.key_password, tls.check_host, tls.server_name) == ("hush", False, "mq.example")
    assert tls.protocols == ("TLSv1.3",)
    assert tls.words.trust.startswith("tls.client.trustCertPath=")


def test_verification_is_off_only_on_purpose_and_wins_over_a_trust_file() -> None:
    texts = {"useTLS": "true", "tls.client.trustCertPath": "/ca.pem"}
    careless = loaded(**texts, **{"tls.client.authServer": "false"}).client_tls()
    assert careless is not None
    assert (careless.verify, careless.trust) == (False, None)


@pytest.mark.parametrize(
    ("need", "auth_client", "expected"),
    [
        (None, None, ClientAuth.NONE),
        (None, "false", ClientAuth.NONE),
        (None, "true", ClientAuth.OPTIONAL),
        ("optional", "true", ClientAuth.OPTIONAL),
        ("require", "true", ClientAuth.REQUIRE),
        ("require", None, ClientAuth.REQUIRE),
    ],
)
def test_certificates_of_clients_are_verified_where_they_are_asked_for(
    need: str | None, auth_client: str | None, expected: ClientAuth
) -> None:
    keys = {"tls.server.need.client.auth": need, "tls.server.authClient": auth_client}
    texts = {key: text for key, text in keys.items() if text}
    tls = loaded(**texts, **{"tls.server.trustCertPath": "/ca.pem"}).server_tls()
    assert tls.client_auth is expected


def test_unchecked_certificates_of_clients_are_refused() -> None:
    settings = loaded(
        **{"tls.server.need.client.auth": "require", "tls.server.authClient": "false"}
    )
    with pytest.raises(ConfigError, match=r"tls\.server\.authClient=false would accept any"):
        settings.server_tls()
    with pytest.raises(ConfigError, match=r"set tls\.server\.trustCertPath"):
        loaded(**{"tls.server.authClient": "true"}).server_tls()


def test_versions_and_ciphers_hold_for_the_server_and_its_calls() -> None:
    settings = loaded(
        **{
            "useTLS": "true",
            "tls.protocols": "TLSv1.2, TLSv1.3",
            "tls.ciphers": "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384",
        }
    )
    expected = ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384")
    assert settings.server_tls().ciphers == expected
    assert settings.server_tls().protocols == ("TLSv1.2", "TLSv1.3")
    tls = settings.client_tls()
    assert tls is not None
    assert tls.ciphers == expected


@pytest.mark.parametrize("key", ["tls.protocols", "tls.ciphers"])
def test_a_server_does_not_start_with_an_unknown_version_or_cipher(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=SSLv3"):
        loaded(**{key: "SSLv3"}).server_tls()


def test_an_empty_text_leaves_the_choice_open() -> None:
    assert loaded(**{"tls.server.authClient": ""}).tls_auth_client is None


def test_passwords_are_not_among_the_texts() -> None:
    texts = to_texts(loaded(**{"tls.client.keyPassword": "hush", "tls.server.keyPassword": "hush"}))
    assert "hush" not in str(texts)


def test_all_keys_of_a_tls_file_are_read(tmp_path: Path) -> None:
    texts = {
        "tls.server.certPath": "/s.pem",
        "tls.client.authServer": "true",
        "tls.protocols": "TLSv1.3",
        "tls.ciphers": "",
    }
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in texts.items()) + "other=1\n")
    assert tls_texts(file) == texts
    assert loaded(**tls_texts(file)).server_tls().ciphers == ()
