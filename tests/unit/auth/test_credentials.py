"""Credentials in settings, and the classes that settings may name."""

from typing import Any

import pytest

from bolide.auth.credentials import (
    initial_user,
    inner_credentials,
    inner_signers,
    with_inner_credentials,
)
from bolide.auth.settings import USUAL_CLASSES, AccessSettings, refuse_other_classes
from bolide.broker.settings.config import load_settings
from bolide.errors import ConfigError
from tests.support.access import FIRST_USER, INNER

BAD = [
    "secret-word",
    '"secret-word"',
    '{"username":"secret-word"}',
    '{"username":"a","password":7}',
    '{"username":"a","password":"secret-word","more":1}',
    '{"username":" ","password":"secret-word"}',
    '{"username":"a","password":" "}',
    '{"accessKey":"secret-word"}',
    '{"accessKey":"a","secretKey":[]}',
    '{"accessKey":"","secretKey":"secret-word"}',
    "{",
]


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize(
    ("field", "key", "read"),
    [
        ("init_authentication_user", "initAuthenticationUser", initial_user),
        (
            "inner_client_authentication_credentials",
            "innerClientAuthenticationCredentials",
            inner_credentials,
        ),
    ],
)
def test_a_wrong_value_is_named_but_never_shown(text: str, field: str, key: str, read: Any) -> None:
    given: dict[str, Any] = {field: text}
    with pytest.raises(ConfigError, match=key) as caught:
        read(AccessSettings(**given))
    assert "secret-word" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_credentials_may_be_absent() -> None:
    for text in (None, "", " "):
        assert initial_user(AccessSettings(init_authentication_user=text)) is None
    assert inner_signers(AccessSettings()) == ()


def test_credentials_of_servers_sign_requests() -> None:
    settings = AccessSettings(inner_client_authentication_credentials=INNER)
    assert len(inner_signers(settings)) == 1


def test_the_first_user_signs_if_nobody_else_does() -> None:
    settings = AccessSettings(init_authentication_user=FIRST_USER)
    found = inner_credentials(with_inner_credentials(settings))
    assert found is not None
    assert (found.access_key, found.secret_key) == ("root", "root-secret")
    other = AccessSettings(
        init_authentication_user=FIRST_USER,
        inner_client_authentication_credentials='{"accessKey":"x","secretKey":"y"}',
    )
    assert with_inner_credentials(other) == other
    assert with_inner_credentials(AccessSettings()) == AccessSettings()


@pytest.mark.parametrize("key", USUAL_CLASSES)
def test_rocketmqs_own_classes_change_nothing(key: str) -> None:
    for name in ("", *USUAL_CLASSES[key]):
        load_settings({key: name})


@pytest.mark.parametrize("key", USUAL_CLASSES)
def test_another_class_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=com.example.Mine"):
        load_settings({key: "com.example.Mine"})
    with pytest.raises(ConfigError, match=key):
        refuse_other_classes({key: "com.example.Mine"})
