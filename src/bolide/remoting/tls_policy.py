"""Which TLS versions and ciphers may be negotiated (`tls.protocols`, `tls.ciphers`).

Ciphers are accepted under the names of Java and IANA and under those of OpenSSL. Only ciphers of
the table below are accepted: each encrypts, authenticates the server and is usable in TLS 1.2.
"""

import difflib
import ssl
from collections.abc import Sequence

from bolide.errors import ConfigError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = {"SSLv2", "SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"}

CIPHERS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The ciphers of TLS 1.3 that OpenSSL enables. Python's ssl module cannot select some of them."""

CIPHERS_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
"""Ciphers of TLS 1.2: the name of IANA and Java, and the name of OpenSSL."""

_OPENSSL_NAMES = frozenset(CIPHERS_1_2.values())


def restrict(context: ssl.SSLContext, protocols: Sequence[str], ciphers: Sequence[str]) -> None:
    """Restrict a context; an empty list leaves OpenSSL's defaults, with TLS 1.2 as the oldest.

    Raises:
        ConfigError: a version or cipher is unknown, insecure, or not available in OpenSSL here.
    """
    versions = allowed_versions(protocols, ciphers)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    names = _openssl_names(ciphers)
    if not names:
        return
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as exc:
        raise _unavailable(names) from exc
    enabled = {cipher["name"] for cipher in context.get_ciphers()}
    if missing := [name for name in names if name not in enabled]:
        raise _unavailable(missing)


def allowed_versions(protocols: Sequence[str], ciphers: Sequence[str]) -> set[ssl.TLSVersion]:
    """The TLS versions of `protocols` for which `ciphers` has a cipher.

    Raises:
        ConfigError: as in `restrict`, or no version is left.
    """
    versions = {_version(name) for name in protocols} or set(_VERSIONS.values())
    if not ciphers:
        return versions
    has_1_2, has_1_3 = bool(_openssl_names(ciphers)), bool(_of_1_3(ciphers))
    usable = {ssl.TLSVersion.TLSv1_2: has_1_2, ssl.TLSVersion.TLSv1_3: has_1_3}
    left = {version for version in versions if usable[version]}
    if not left:
        raise ConfigError(
            f"tls.ciphers={','.join(ciphers)}: none of these is a cipher of"
            f" tls.protocols={','.join(protocols)}; name ciphers of these versions"
        )
    return left


def _version(name: str) -> ssl.TLSVersion:
    if name in _OLD_VERSIONS:
        raise ConfigError(
            f"tls.protocols={name}: versions before TLSv1.2 are not secure and not supported;"
            " use TLSv1.2,TLSv1.3"
        )
    if name not in _VERSIONS:
        raise ConfigError(f"tls.protocols={name}: must be TLSv1.2, TLSv1.3 or TLSv1.2,TLSv1.3")
    return _VERSIONS[name]


def _openssl_names(ciphers: Sequence[str]) -> list[str]:
    """OpenSSL's names of the ciphers of TLS 1.2."""
    return [_openssl_name(name) for name in ciphers if name not in CIPHERS_1_3]


def _openssl_name(name: str) -> str:
    if name in _OPENSSL_NAMES:
        return name
    if name not in CIPHERS_1_2:
        known = [*CIPHERS_1_2, *CIPHERS_1_2.values(), *CIPHERS_1_3]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use for example {known[0]}"
        raise ConfigError(f"tls.ciphers={name}: unknown or not secure; {hint}")
    return CIPHERS_1_2[name]


def _of_1_3(ciphers: Sequence[str]) -> list[str]:
    found = [name for name in CIPHERS_1_3 if name in ciphers]
    if found and len(found) < len(CIPHERS_1_3):
        raise ConfigError(
            f"tls.ciphers={','.join(found)}: the ciphers of TLS 1.3 cannot be selected one by one;"
            f" name all of {','.join(CIPHERS_1_3)}, or none of them, which disables TLS 1.3"
        )
    return found


def _unavailable(names: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"tls.ciphers={','.join(names)}: not available in {ssl.OPENSSL_VERSION}, by its version or"
        " by the security policy of this system"
    )
