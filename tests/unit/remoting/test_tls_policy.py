"""Versions and ciphers: what is accepted, refused, and put into a context."""

import shutil
import ssl
import subprocess

import pytest

from bolide.errors import ConfigError
from bolide.remoting.tls_policy import CIPHERS_1_2, CIPHERS_1_3, allowed_versions, restrict

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def restricted(protocols: tuple[str, ...] = (), ciphers: tuple[str, ...] = ()) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, protocols, ciphers)
    return context


@pytest.mark.parametrize(
    ("protocols", "lowest", "highest"),
    [
        ((), V12, V13),
        (("TLSv1.2",), V12, V12),
        (("TLSv1.3",), V13, V13),
        (("TLSv1.3", "TLSv1.2"), V12, V13),
    ],
)
def test_versions_are_bounds_of_the_context(
    protocols: tuple[str, ...], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    context = restricted(protocols)
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)


@pytest.mark.parametrize("old", ["SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"])
def test_old_versions_are_refused_beside_new_ones_too(old: str) -> None:
    with pytest.raises(ConfigError, match=rf"tls\.protocols={old}: .*use TLSv1\.2,TLSv1\.3"):
        allowed_versions([old, "TLSv1.2"], [])


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be TLSv1\.2, TLSv1\.3"):
        allowed_versions(["TLS"], [])


@pytest.mark.parametrize("name", ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", *CIPHERS_1_2.values()])
def test_a_cipher_of_tls_1_2_leaves_only_that_cipher_and_version(name: str) -> None:
    try:
        context = restricted(ciphers=(name,))
    except ConfigError as exc:
        assert "not available in OpenSSL" in str(exc)  # a policy of the system
        return
    assert context.maximum_version is V12
    enabled = {cipher["name"] for cipher in context.get_ciphers()} - set(CIPHERS_1_3)
    assert enabled == {CIPHERS_1_2.get(name, name)}


def test_ciphers_of_tls_1_3_alone_leave_only_that_version() -> None:
    assert restricted(ciphers=CIPHERS_1_3).minimum_version is V13


def test_ciphers_of_both_versions_leave_both() -> None:
    context = restricted(ciphers=(*CIPHERS_1_3, "ECDHE-RSA-AES128-GCM-SHA256"))
    assert (context.minimum_version, context.maximum_version) == (V12, V13)


def test_some_ciphers_of_tls_1_3_are_refused_because_all_would_be_enabled() -> None:
    with pytest.raises(ConfigError, match="cannot be selected one by one; name all of"):
        allowed_versions([], CIPHERS_1_3[:1])


def test_ciphers_of_another_version_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"none of these is a cipher of tls\.protocols=TLSv1\.3"):
        allowed_versions(["TLSv1.3"], ["ECDHE-RSA-AES128-GCM-SHA256"])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA265", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("ECDHE-RSA-AES128-GCM", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("HIGH", "use for example"),
        ("NULL-SHA256", "unknown or not secure"),
        ("TLS_RSA_WITH_RC4_128_MD5", "unknown or not secure"),
        ("ADH-AES128-SHA", "unknown or not secure"),
    ],
)
def test_unknown_and_insecure_ciphers_are_refused_by_name(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"tls\.ciphers={name}: .*{hint}"):
        allowed_versions([], [name])


def test_names_are_those_of_openssl() -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not on PATH: install openssl")
    listed = subprocess.run(
        [openssl, "ciphers", "-stdname", "ALL:@SECLEVEL=0"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    words = [line.split() for line in listed.splitlines()]
    theirs = {line[0]: line[2] for line in words}
    assert {name: theirs[name] for name in CIPHERS_1_2} == CIPHERS_1_2
    assert set(CIPHERS_1_3) <= theirs.keys()
