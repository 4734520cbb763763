"""Which access control the settings choose, and what they must not say."""

from pathlib import Path

import pytest

from bolide.auth.access import OpenAccess
from bolide.auth.choice import choose_access
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.model import User, UserType
from bolide.auth.settings import AccessSettings
from bolide.errors import ConfigError
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from tests.support.access import FIRST_USER, INNER, access_in, secret_of, signed

PEER = "127.0.0.1:5000"


def test_by_default_there_is_no_access_control(tmp_path: Path) -> None:
    assert isinstance(choose_access(AccessSettings(), directory=tmp_path), OpenAccess)
    assert not list(tmp_path.iterdir())


def test_a_name_without_a_signature_is_no_access_control(tmp_path: Path) -> None:
    settings = AccessSettings(authorization_enabled=True)
    with pytest.raises(ConfigError, match="authorizationEnabled=true needs authenticationEnabled"):
        choose_access(settings, directory=tmp_path)


def test_there_must_be_a_first_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        access_in(tmp_path, init_authentication_user=None)


def test_the_first_user_is_a_super_user_and_stays(tmp_path: Path) -> None:
    assert access_in(tmp_path).metadata.users["root"].type is UserType.SUPER
    later = '{"username":"root","password":"changed"}'
    assert (
        access_in(tmp_path, init_authentication_user=later).metadata.users["root"].password
        == "root-secret"
    )
    assert access_in(tmp_path, init_authentication_user=None).metadata.users.keys() == {"root"}


def test_the_credentials_of_servers_are_a_super_user_too(tmp_path: Path) -> None:
    inner = '{"accessKey":"inner","secretKey":"inner-secret"}'
    users = access_in(tmp_path, inner_client_authentication_credentials=inner).metadata.users
    assert users["inner"].type is UserType.SUPER
    same = access_in(tmp_path / "same", inner_client_authentication_credentials=INNER)
    assert same.metadata.users.keys() == {"root"}


def test_the_directory_of_the_settings_comes_first(tmp_path: Path) -> None:
    access_in(tmp_path / "usual", auth_config_path=tmp_path / "other")
    assert (tmp_path / "other" / "users.json").exists()
    assert not (tmp_path / "usual").exists()


def test_a_damaged_file_keeps_a_server_from_starting(tmp_path: Path) -> None:
    access_in(tmp_path)
    (tmp_path / "users.json").write_text("{")
    with pytest.raises(ConfigError, match=r"users\.json is damaged"):
        access_in(tmp_path)


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("authentication_whitelist", "authenticationWhitelist"),
        ("authorization_whitelist", "authorizationWhitelist"),
    ],
)
def test_words_of_white_lists_that_are_no_codes_are_passed_over(
    tmp_path: Path, field: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    words = ("apache.rocketmq.v2.X", "0105", "+105", "1_05", "٣", "105")
    access = access_in(tmp_path, **{field: words})
    others = [f"{key}: {word} is no request code and has no effect here" for word in words[:-1]]
    assert [each for each in caplog.messages if key in each] == others
    unsigned = Frame(code=105, fields={"topic": "x"})
    if field == "authentication_whitelist":
        with pytest.raises(NoPermission, match="Authorization failed"):
            access.check(unsigned, PEER)
    else:
        access.metadata.add_missing([User("shop", secret_of("shop"))])
        access.check(signed(unsigned, "shop"), PEER)


def test_the_chosen_access_is_of_users_and_policies(tmp_path: Path) -> None:
    settings = AccessSettings(authentication_enabled=True, init_authentication_user=FIRST_USER)
    assert isinstance(choose_access(settings, directory=tmp_path), PolicyAccess)
    with pytest.raises(ConfigError, match="authConfigPath"):
        choose_access(settings)
