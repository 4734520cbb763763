"""TLS options of commands that connect to a cluster."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.program import AdminGroup, BenchGroup
from bolide.cli.tls_options import KEY_PASSWORD, add_tls_options, chosen_tls
from bolide.remoting.tls import ClientTls

seen: list[ClientTls | None] = []


def look(number: int = 1) -> None:
    seen.append(chosen_tls())


@pytest.fixture
def command() -> Any:
    seen.clear()
    program = typer.Typer(add_completion=False)
    program.command("look")(look)
    program.command("other")(look)
    group = typer.main.get_group(program)
    add_tls_options(group.commands)
    return group


def run(command: Any, *words: str) -> ClientTls | None:
    with pytest.raises(SystemExit) as ended:
        command(["look", *words], prog_name="test")
    assert ended.value.code in (0, None)
    return seen[-1]


def test_without_options_commands_use_plain_text(command: Any) -> None:
    assert run(command, "--number", "2") is None
    assert chosen_tls() is None


def test_any_option_turns_tls_on(command: Any) -> None:
    assert run(command, "--tls") == ClientTls()
    assert run(command, "--trust", "ca.pem") == ClientTls(trust=Path("ca.pem"))
    assert run(command, "--no-verify") == ClientTls(verify=False)
    assert run(command, "--no-check-host") == ClientTls(check_host=False)
    assert run(command, "--server-name", "mq") == ClientTls(server_name="mq")
    assert chosen_tls() is None


def test_a_client_certificate_has_its_password_from_the_environment(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_PASSWORD, "hush")
    tls = run(command, "--client-certificate", "c.pem", "--client-key", "c.key")
    assert tls == ClientTls(certificate="c.pem", key="c.key", key_password="hush")


def test_options_come_from_the_environment_except_the_unsafe_one(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOLIDE_TRUST", "ca.pem")
    monkeypatch.setenv("BOLIDE_NO_VERIFY", "true")
    assert run(command) == ClientTls(trust="ca.pem")


def test_options_that_contradict_each_other_end_the_command_with_a_line(
    command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command(["look", "--trust", "ca.pem", "--no-verify"], prog_name="test")
    assert ended.value.code
    assert "--trust path/to/ca.pem has no effect with --no-verify" in capsys.readouterr().err
    assert not seen


@pytest.mark.parametrize("group", [AdminGroup, BenchGroup])
def test_every_command_has_the_options_and_none_twice(group: Any) -> None:
    for name, command in group().load().items():
        flags = Counter(flag for each in command.params for flag in each.opts)
        assert name == "help" or flags["--trust"] == 1
        assert not [flag for flag, count in flags.items() if count > 1], name
        names = Counter(each.name for each in command.params)
        assert not [each for each, count in names.items() if count > 1], name


def test_the_help_of_a_command_names_the_variables() -> None:
    shown = CliRunner().invoke(app, ["admin", "topicList", "--help"], terminal_width=200).output
    assert "--trust" in shown
    assert "BOLIDE_TRUST" in shown
