"""Where admin commands find their credentials."""

import io
from pathlib import Path

import pytest

from bolide.cli.admin.credentials import changed_secret, new_secret, own_credentials
from bolide.errors import ConfigError


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOLIDE_ACCESS_KEY", "BOLIDE_SECRET_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    return tmp_path


def write_tools_yml(home: Path, text: str) -> None:
    (home / "conf" / "tools.yml").write_text(text)


def test_they_come_from_the_file_of_rocketmq(home: Path) -> None:
    write_tools_yml(home, "accessKey: rocketmq2\nsecretKey: 12345678\n")
    assert own_credentials() == ("rocketmq2", "12345678")


def test_the_environment_wins_over_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tools_yml(home, "accessKey: a\nsecretKey: b\n")
    monkeypatch.setenv("BOLIDE_ACCESS_KEY", "c")
    monkeypatch.setenv("BOLIDE_SECRET_KEY", "d")
    assert own_credentials() == ("c", "d")


def test_a_file_without_keys_signs_nothing(home: Path) -> None:
    write_tools_yml(home, "accessKey:\nsecretKey:\n")
    assert own_credentials() == (None, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("what", ["Password", "Secret key"])
def test_a_prompt_names_the_secret_that_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    asked: list[str] = []

    def prompt(text: str, **_: object) -> str:
        asked.append(text)
        return "typed"

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("sys.stdin", Terminal())
    assert new_secret("-", "BOLIDE_X", what) == "typed"
    assert new_secret(None, "BOLIDE_X", what) == "typed"
    assert asked == [what, what]


def test_a_variable_alone_changes_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLIDE_X", "left-over")
    assert changed_secret(None, "BOLIDE_X", "Password", asked=False) is None
    assert changed_secret(None, "BOLIDE_X", "Password", asked=True) == "left-over"
    assert changed_secret("given", "BOLIDE_X", "Password", asked=False) == "given"


def test_without_either_nothing_is_signed(home: Path) -> None:
    assert own_credentials() == (None, None)


def test_one_key_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLIDE_ACCESS_KEY", "ops")
    with pytest.raises(ConfigError, match="BOLIDE_SECRET_KEY"):
        own_credentials()


@pytest.mark.parametrize("text", ["secretKey: hidden\n  x: [", "accessKey: a\nsecretKey: [hidden]"])
def test_an_error_names_the_file_and_quotes_nothing_of_it(home: Path, text: str) -> None:
    write_tools_yml(home, text)
    with pytest.raises(ConfigError, match=r"tools\.yml") as caught:
        own_credentials()
    assert "hidden" not in str(caught.value)
