"""The commands as they are installed: what they print, how they end and what they listen to."""

import re
import signal
import socket
import time
from pathlib import Path

import pytest

from bolide.version import __version__
from tests.support.commands import PATIENCE, Running, run


def printed(*words: str, **environment: str) -> dict[str, str]:
    """The settings that `mqnamesrv -p` prints."""
    done = run("mqnamesrv", "-p", *words, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if re.match(r"[\w.]+=", line))
    return dict(pairs)


def serving(started: list[Running], *words: str) -> Running:
    """A started NameServer on a free port."""
    running = Running(*words)
    started.append(running)
    running.wait_for("The Name Server boot success")
    running.wait_for("Serving .*\n")
    return running


# Help, version, completion


def test_version_is_printed(home: Path) -> None:
    done = run("bolide", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bolide {__version__}\n", "")


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_names_the_commands(home: Path, words: list[str]) -> None:
    done = run("bolide", *words)
    for command in ("namesrv", "standalone", "broker"):
        assert command in done.stdout + done.stderr


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_mqnamesrv_has_the_options_of_rocketmq(home: Path, flag: str) -> None:
    done = run("mqnamesrv", flag)
    assert done.returncode == 0
    for option in ("-c", "--configFile", "-p", "--printConfigItem", "--strict", "KEY=VALUE"):
        assert option in done.stdout


def test_an_unknown_command_or_option_is_a_usage_error(home: Path) -> None:
    assert run("bolide", "fly").returncode == 2
    done = run("mqnamesrv", "--colour")
    assert done.returncode == 2
    assert "--colour" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_completion(home: Path, shell: str) -> None:
    done = run("bolide", _BOLIDE_COMPLETE=f"source_{shell}")
    assert f"complete_{shell}" in done.stdout


def test_completion_knows_commands_and_options(home: Path) -> None:
    def complete(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        environment = {"COMP_WORDS": words, "COMP_CWORD": count}
        return run("bolide", _BOLIDE_COMPLETE="complete_bash", **environment).stdout.split()

    assert complete("bolide na") == ["namesrv"]
    assert "--strict" in complete("bolide namesrv --s")


# Settings


def test_the_defaults_are_printed_each_with_its_sentence(home: Path) -> None:
    done = run("mqnamesrv", "-p")
    assert "# Port to listen on; 0 selects a free port.\nlistenPort=9876\n" in done.stdout
    assert "# serverWorkerThreads=8  (" in done.stdout
    assert printed()["kvConfigPath"] == str(home / "namesrv" / "kvConfig.json")


def test_what_is_printed_can_be_read_back(home: Path) -> None:
    (home / "all.conf").write_text(run("mqnamesrv", "-p", "listenPort=7").stdout)
    done = run("mqnamesrv", "-p", "--strict", "-c", "all.conf")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nlistenPort=7\n" in done.stdout


def test_words_set_settings_by_their_keys(home: Path) -> None:
    settings = printed("listenPort=1", "orderMessageEnable=true", "bindAddress = ::1")
    assert settings["listenPort"] == "1"
    assert settings["orderMessageEnable"] == "true"
    assert settings["bindAddress"] == "::1"


def test_later_sources_win(home: Path) -> None:
    (home / "a.conf").write_text("listenPort=1\nserverSocketBacklog=2\nmaxConnections=3\n")
    environment = {
        "BOLIDE_NAMESRV_LISTEN_PORT": "10",
        "BOLIDE_NAMESRV_SERVER_SOCKET_BACKLOG": "20",
    }
    settings = printed("-c", "a.conf", "listenPort=100", **environment)
    assert settings["listenPort"] == "100"
    assert settings["serverSocketBacklog"] == "20"
    assert settings["maxConnections"] == "3"
    assert printed("listenPort=5", "--listen-port", "6")["listenPort"] == "6"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("namesrv.conf", "# RocketMQ's\nlistenPort : 1\nkvConfigPath=a\\\n  b\n"),
        ("namesrv.properties", "\ufefflistenPort 1\r\nkvConfigPath = ab\r\n"),
    ],
)
def test_files_of_rocketmq_are_read(home: Path, name: str, text: str) -> None:
    (home / name).write_text(text, encoding="utf-8")
    settings = printed("-c", name)
    assert (settings["listenPort"], settings["kvConfigPath"]) == ("1", "ab")
    assert settings["configStorePath"] == name


def test_a_file_is_looked_for_in_rocketmq_home(home: Path) -> None:
    (home / "rocketmq" / "conf").mkdir(parents=True)
    (home / "rocketmq" / "conf" / "namesrv.conf").write_text("listenPort=1")
    place = str(home / "rocketmq")
    settings = printed("-c", "namesrv.conf", ROCKETMQ_HOME=place)
    assert (settings["listenPort"], settings["rocketmqHome"]) == ("1", place)
    (home / "namesrv.conf").write_text("listenPort=2")
    assert printed("-c", "namesrv.conf", ROCKETMQ_HOME=place)["listenPort"] == "2"


def test_keys_of_tls_come_from_their_own_file(home: Path) -> None:
    (home / "tls.properties").write_text("tls.server.mode=disabled\ntls.client.certPath=x\n")
    (home / "namesrv.conf").write_text(f"tls.config.file = {home}/tls.properties \n")
    assert printed("--strict", "-c", "namesrv.conf")["tls.server.mode"] == "disabled"


def test_the_level_of_the_log_file_is_the_default_of_the_setting(home: Path) -> None:
    (home / "logging.toml").write_text('level = "ERROR"\n')
    assert printed("--log-config", "logging.toml")["logLevel"] == "ERROR"
    assert printed("--log-config", "logging.toml", "logLevel=DEBUG")["logLevel"] == "DEBUG"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["listenPort=70000"], "listenPort=70000: must be a whole number from 0 to 65535"),
        (["--listen-port", "70000"], "listenPort=70000"),
        (["listenPort=ten"], "listenPort='ten': must be a whole number from 0 to 65535"),
        (["orderMessageEnable=yes"], "orderMessageEnable='yes': must be true or false"),
        (["tls.server.mode=maybe"], "must be one of disabled, permissive, enforcing"),
        (["tls.server.mode=enforcing"], "set tls.server.certPath"),
        (["kvConfigPath="], "kvConfigPath='': must be a path"),
        (["listenPort"], "'listenPort' is not of the form key=value"),
        (["--strict", "listnPort=1"], "unknown key listnPort; did you mean listenPort?"),
        (["-c", "missing.conf"], "cannot read the configuration file missing.conf"),
        (["--log-config", "missing.toml"], "missing.toml"),
        (["bindAddress=no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_a_mistake_ends_the_start_with_one_clear_line(
    home: Path, words: list[str], named: str
) -> None:
    done = run("mqnamesrv", *words)
    assert done.returncode == 3
    assert named in done.stderr
    assert done.stderr.startswith("mqnamesrv: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_value_of_the_environment_is_refused(home: Path) -> None:
    done = run("mqnamesrv", "-p", BOLIDE_NAMESRV_LISTEN_PORT="-1")
    assert done.returncode == 3
    assert "listenPort=-1" in done.stderr


def test_an_unknown_key_is_warned_of_with_the_nearest(home: Path) -> None:
    done = run("mqnamesrv", "-p", "listnPort=1")
    assert done.returncode == 0
    assert "unknown key listnPort is ignored; did you mean listenPort?" in done.stderr


def test_a_key_without_effect_is_no_mistake_even_if_strict(home: Path) -> None:
    done = run("mqnamesrv", "-p", "--strict", "serverWorkerThreads=1", "clientWorkerThreads=1")
    assert done.returncode == 0
    assert "serverWorkerThreads has no effect: " in done.stderr


def test_a_port_in_use_is_named(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("mqnamesrv", "bindAddress=127.0.0.1", f"listenPort={port}")
    assert done.returncode == 3
    assert f"cannot listen on 127.0.0.1:{port}: " in done.stderr


# Serving

LOCAL = ("bindAddress=127.0.0.1", "listenPort=0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_is_and_stops_when_told_to(
    started: list[Running], number: signal.Signals
) -> None:
    server = serving(started, "mqnamesrv", *LOCAL)
    line = r"The Name Server boot success\. serializeType=JSON, address 127\.0\.0\.1:(\d+)\n"
    port = int(server.wait_for(line).group(1))
    socket.create_connection(("127.0.0.1", port)).close()
    assert server.stop(number) == 0
    assert server.output.endswith("The Name Server stopped.\n")


def test_hangup_reads_the_log_config_again(started: list[Running], home: Path) -> None:
    config, second = home / "logging.toml", home / "second.log"
    config.write_text('format = "json"\nfile = "first.log"\n')
    server = serving(started, "mqnamesrv", "--log-config", "logging.toml", *LOCAL)
    config.write_text(f'file = "{second}"\n')
    server.process.send_signal(signal.SIGHUP)
    _wait_until_exists(second)
    assert server.stop() == 0


def test_hangup_with_a_broken_log_config_changes_nothing(
    started: list[Running], home: Path
) -> None:
    config = home / "logging.toml"
    config.write_text("")
    server = serving(started, "mqnamesrv", "--log-config", "logging.toml", *LOCAL)
    config.write_text('level = "LOUD"\n')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("the logs stay as they are: .*LOUD")
    assert server.stop() == 0


def test_hangup_reads_the_log_config_of_rocketmq_home(
    started: list[Running], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, log = home / "conf" / "logging.toml", home / "home.log"
    config.parent.mkdir()
    config.write_text("")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    server = serving(started, "mqnamesrv", *LOCAL)
    config.write_text(f'file = "{log}"\n')
    server.process.send_signal(signal.SIGHUP)
    _wait_until_exists(log)
    assert server.stop() == 0


def _wait_until_exists(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.005)
