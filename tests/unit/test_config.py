"""Settings: how they are declared, parsed, loaded and changed."""

import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from bolide.config import (
    ConfigCell,
    Ignored,
    Option,
    fixed_keys,
    from_environment,
    from_reference,
    load,
    option,
    options_of,
    read_file,
    secret_keys,
    to_texts,
)
from bolide.errors import ConfigError


class Colour(StrEnum):
    RED = "red"
    DARK_RED = "Dark-Red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    listen_port: int = option(9876, "Port.", bounds=(0, 65535))
    buffer_size: int = option(0, "Bytes.", bounds=(0, 2**30))
    threads: int = option(1, "Threads.", bounds=(1, None))
    scan_interval: float = option(10.0, "Milliseconds.", bounds=(10, 86_400_000), scale=1000)
    is_open: bool = option(False, "Open or not.", live=True)
    colour: Colour = option(Colour.RED, "A colour.")
    certificate: Path | None = option(None, "A file, or none.", key="tls.certPath", ours=True)
    store: Path = option(lambda: Path("/var/store"), "A directory.")
    name: str = option("x", "A name.")
    names: tuple[str, ...] = option((), "Names.")
    password: str | None = option(None, "A password.", secret=True)
    file_size: int = option(8, "Bytes.", bounds=(1, 100), aliases=("filSize", "fileSise"))
    paths: tuple[Path, ...] | None = option(None, "Directories.", separator=",")
    secretary: str = option("s", "A name.", fixed=True, aliases=("oldSecretary",))


@dataclass(frozen=True, slots=True, kw_only=True)
class WithSecretNumber:
    pin: int = option(0, "A number.", secret=True, bounds=(0, 9999))


OPTIONS = options_of(Example)
IGNORED = {"oldThreads": Ignored("8", "there are none")}


def test_a_key_is_the_name_in_camel_case_unless_said_otherwise() -> None:
    assert list(OPTIONS)[:3] == ["listenPort", "bufferSize", "threads"]
    assert OPTIONS["tls.certPath"].field == "certificate"


def test_an_option_keeps_what_was_declared() -> None:
    assert OPTIONS["store"].default == Path("/var/store")
    assert OPTIONS["tls.certPath"].kind is Path
    assert (OPTIONS["tls.certPath"].ours, OPTIONS["isOpen"].live) == (True, True)
    assert OPTIONS["listenPort"].doc == "Port."


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("listenPort", " 10911 ", 10911),
        ("listenPort", "+0", 0),
        ("scanInterval", "1500", 1.5),
        ("isOpen", "TRUE", True),
        ("isOpen", "false", False),
        ("colour", "DARK-RED", Colour.DARK_RED),
        ("tls.certPath", "/etc/a.pem", Path("/etc/a.pem")),
        ("tls.certPath", "", None),
        ("store", "~/store", Path.home() / "store"),
        ("name", "", ""),
    ],
)
def test_a_text_becomes_its_value(key: str, text: str, value: object) -> None:
    parsed = OPTIONS[key].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("listenPort", "70000", "listenPort=70000: must be a whole number from 0 to 65535"),
        ("listenPort", "-1", "listenPort=-1: must be a whole number from 0 to 65535"),
        ("listenPort", "ten", "listenPort='ten': must be a whole number from 0 to 65535"),
        ("listenPort", "", "listenPort='': must be a whole number from 0 to 65535"),
        ("listenPort", "+-1", "must be a whole number"),
        ("listenPort", "1.5", "must be a whole number"),
        ("listenPort", "1_000", "must be a whole number"),
        ("listenPort", "\N{ARABIC-INDIC DIGIT ONE}", "must be a whole number"),
        ("listenPort", "9" * 5000, "listenPort="),
        ("bufferSize", "-1", "bufferSize=-1: must be a whole number from 0 to 1073741824"),
        ("threads", "0", "threads=0: must be a whole number of at least 1"),
        ("scanInterval", "9", "scanInterval=9: must be a whole number from 10 to 86400000"),
        ("isOpen", "yes", "isOpen='yes': must be true or false"),
        ("colour", "blue", "colour='blue': must be one of red, Dark-Red"),
        ("store", " ", "store=' ': must be a path"),
        ("store", "~nobody-of-that-name/x", "store='~nobody-of-that-name/x': "),
    ],
)
def test_a_wrong_text_is_refused_with_key_value_and_bound(key: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OPTIONS[key].parse(text)
    assert why in str(caught.value)


@pytest.mark.parametrize("text", ["1", "0"])
def test_a_number_is_no_boolean(text: str) -> None:
    with pytest.raises(ConfigError, match="true or false"):
        OPTIONS["isOpen"].parse(text)


@pytest.mark.parametrize("found", OPTIONS.values(), ids=lambda found: found.key)
def test_a_default_is_parsed_from_its_own_text(found: Option) -> None:
    assert found.parse(found.format(found.default)) == found.default


def test_texts_are_those_rocketmq_prints() -> None:
    texts = to_texts(Example(scan_interval=0.25, is_open=True, store=Path("/s")))
    assert texts["scanInterval"] == "250"
    assert texts["isOpen"] == "true"
    assert texts["colour"] == "red"
    assert texts["store"] == "/s"
    assert "tls.certPath" not in texts


def test_load_takes_defaults_for_what_is_not_given() -> None:
    assert load(Example, {"listenPort": "1"}) == Example(listen_port=1)


def test_load_warns_of_a_key_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(Example, {"oldThreads": "4"}, ignored=IGNORED, strict=True)
    assert caplog.messages == ["oldThreads has no effect: there are none"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("listnPort", "; did you mean listenPort?"),
        ("oldThread", "; did you mean oldThreads?"),
        ("zzz", ""),
    ],
)
def test_load_warns_of_an_unknown_key_and_names_the_nearest(
    key: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert load(Example, {key: "1"}, ignored=IGNORED) == Example()
    assert caplog.messages == [f"unknown key {key} is ignored{hint}"]


def test_strict_load_refuses_an_unknown_key() -> None:
    with pytest.raises(ConfigError, match="unknown key listnPort; did you mean listenPort"):
        load(Example, {"listnPort": "1"}, strict=True)


def test_a_properties_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("\ufeff# comment\r\nlistenPort = 1\r\nname : ü\r\n", encoding="utf-8")
    assert read_file(file) == {"listenPort": "1", "name": "ü"}


def test_a_comment_in_another_encoding_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_bytes("# 端口\nlistenPort=1\n".encode("gbk"))
    assert read_file(file) == {"listenPort": "1"}
    assert "namesrv.conf is not valid UTF-8" in caplog.text


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.conf", tmp_path):
        with pytest.raises(ConfigError, match=path.name):
            read_file(path)


def test_the_environment_names_fields_in_capitals() -> None:
    environment = {"X_LISTEN_PORT": "1", "X_CERTIFICATE": "c", "X_NOTHING": "?", "STORE": "?"}
    assert from_environment(Example, "X", environment) == {"listenPort": "1", "tls.certPath": "c"}


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X_LISTEN_PORT", "7")
    assert from_environment(Example, "X") == {"listenPort": "7"}


def test_a_cell_tells_its_listeners_of_a_change() -> None:
    cell, heard = ConfigCell(Example()), list[Example]()
    cell.on_change(heard.append)
    changes = cell.changes({"scanInterval": "500", "isOpen": "false", "unknown": "1"})
    cell.apply(changes)
    assert changes == {"scanInterval": "500"}
    assert heard == [cell.value] == [Example(scan_interval=0.5)]


def test_a_cell_is_silent_when_nothing_changes() -> None:
    cell, heard = ConfigCell(Example()), list[Example]()
    cell.on_change(heard.append)
    assert cell.changes({"listenPort": "9876"}) == {}
    cell.apply({})
    assert heard == []


def test_a_cell_changes_nothing_when_one_value_is_wrong() -> None:
    cell = ConfigCell(Example())
    with pytest.raises(ConfigError, match="isOpen"):
        cell.changes({"listenPort": "1", "isOpen": "maybe"})
    assert cell.value == Example()


def test_a_list_is_separated_by_semicolons_and_trimmed() -> None:
    option = options_of(Example)["names"]
    assert option.parse(" a; b ;;c ") == ("a", "b", "c")
    assert option.format(("a", "b")) == "a;b"


def test_a_secret_is_never_among_the_texts() -> None:
    assert "hunter2" not in to_texts(Example(password="hunter2")).values()


def test_a_secret_is_in_no_repr_and_in_no_error() -> None:
    assert "hush" not in repr(Example(password="hush"))
    found = options_of(WithSecretNumber)["pin"]
    for text in ("hush", "987654"):
        with pytest.raises(ConfigError) as refused:
            found.parse(text)
        assert text not in str(refused.value)
        assert "pin" in str(refused.value)


def test_paths_and_secrets_are_fixed_and_so_is_what_is_declared_so() -> None:
    ignored = {
        "plugIn": Ignored("", "none", fixed=True),
        "token": Ignored("", "none", secret=True),
        "threads": Ignored("8", "none"),
    }
    fixed = {"tls.certPath", "store", "password", "paths", "secretary", "oldSecretary"}
    assert fixed_keys(Example, ignored) == fixed | {"plugIn", "token"}


def test_a_cell_refuses_values_that_do_not_go_together() -> None:
    def check(config: Example) -> None:
        if config.is_open and config.name == "x":
            raise ConfigError("isOpen needs a name")

    cell = ConfigCell(Example(), check)
    with pytest.raises(ConfigError, match="needs a name"):
        cell.changes({"isOpen": "true"})
    assert cell.changes({"isOpen": "true", "name": "y"}) == {"isOpen": "true", "name": "y"}


@pytest.mark.parametrize("key", ["filSize", "fileSise"])
def test_an_old_spelling_is_the_key_said_in_one_line(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert load(Example, {key: "9"}, strict=True) == Example(file_size=9)
    assert caplog.messages == [f"old spellings: {key} is fileSize"]


@pytest.mark.parametrize("keys", [("filSize", "fileSize"), ("fileSize", "filSize")])
def test_the_new_spelling_counts_where_both_are_given(keys: tuple[str, str]) -> None:
    texts = {key: "9" if key == "fileSize" else "7" for key in keys}
    assert load(Example, texts) == Example(file_size=9)


def test_a_wrong_value_under_an_old_spelling_is_refused() -> None:
    with pytest.raises(ConfigError, match="fileSize=101: must be a whole number from 1 to 100"):
        load(Example, {"filSize": "101"})


def test_a_cell_takes_old_spellings_and_answers_with_the_new_ones() -> None:
    cell = ConfigCell(Example())
    changes = cell.changes({"fileSise": "9"})
    assert changes == {"fileSize": "9"}
    cell.apply(changes)
    assert cell.value == Example(file_size=9)


def test_only_new_spellings_are_shown() -> None:
    assert to_texts(Example())["fileSize"] == "8"
    assert "filSize" not in to_texts(Example())


def test_a_list_can_be_of_paths_with_another_separator_or_not_set() -> None:
    option = OPTIONS["paths"]
    assert option.parse("/a;b, ~/c ,") == (Path("/a;b"), Path.home() / "c")
    assert option.format((Path("/a"), Path("/b"))) == "/a,/b"
    assert option.parse(" , ") is None
    assert "paths" not in to_texts(Example())


@pytest.mark.parametrize(
    ("text", "mode", "warned"),
    [
        ("password=abc", 0o644, True),
        ("password=abc", 0o640, False),
        ("password=", 0o644, False),
        ("name=abc", 0o644, False),
    ],
)
def test_a_file_of_secrets_that_everybody_can_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, mode: int, warned: bool
) -> None:
    file = tmp_path / "a.conf"
    file.write_text(text)
    file.chmod(mode)
    read_file(file, secret_keys(Example))
    expected = f"{file} holds secrets and every user can read it: chmod 600 {file}"
    assert caplog.messages == ([expected] if warned else [])


def test_a_value_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hush")
    assert from_reference("${SECRET}") == "hush"
    for text in ("$SECRET", "a ${SECRET}", "${user.home}", ""):
        assert from_reference(text) == text
    with pytest.raises(
        ConfigError, match=r"\$\{MISSING\}: the environment has no variable MISSING"
    ):
        from_reference("${MISSING}")
