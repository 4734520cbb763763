"""Name servers, brokers, clients and mqadmin of Apache RocketMQ, started on demand."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Self

from tests.interop import apache
from tests.interop.processes import ChildProcess, ProcessFailed, accepts_connections
from tests.support.ports import free_port

START_DEADLINE = 60.0
BROKER_NEIGHBOURS = (-2, 1)  # the "VIP" listener and the replication listener

PROXY = "proxy"
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
NAMESRV = "org.apache.rocketmq.namesrv.NamesrvStartup"
MQADMIN = "Mqadmin"

NAMESRV_MEMORY = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
BROKER_MEMORY = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m")
PROXY_MEMORY = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m")
CLIENT_MEMORY = ("-Xms32m", "-Xmx192m", "-XX:MaxDirectMemorySize=128m")

JVM = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
)

# Permissive, the default, costs each listener seconds for a throw-away key.
SERVER_JVM = ("-Dtls.server.mode=disabled",)

# A broker refuses messages on a disk fuller than these.
BROKER_JVM = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)

# Small files for a quick start, and patience where a busy machine would have messages refused.
BROKER_DEFAULTS: Mapping[str, str | int | bool] = {
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "autoCreateTopicEnable": True,
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "diskMaxUsedSpaceRatio": 95,
    "cleanFileForciblyEnable": False,
    "timerWheelEnable": False,
    "waitTimeMillsInSendQueue": 5_000,
    "osPageCacheBusyTimeOutMills": 10_000,
}

# Servers and mqadmin of 4.9 do not start without the first three; its clients read the fourth
# from the class path, 5.x the last. Without them logs would go to standard output.
LOGBACK_4 = ("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml", "logback.xml")
LOGBACK_5 = "rmq.logback.xml"
LOGBACK = """<configuration>
  <appender name="file" class="{package}ch.qos.logback.core.FileAppender">
    <file>${{user.home}}/logs/rocketmq.log</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class Server:
    """A Java name server or broker that is ready for requests."""

    def __init__(self, process: ChildProcess, port: int, directory: Path) -> None:
        self.process = process
        self.port = port
        self.directory = directory
        self.address = f"127.0.0.1:{port}"

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


class Bench:
    """Starts Java processes, each with a private home below the directory; kills all at the end.

    A version is a name in versions.toml. `jvm` takes further JVM options, such as "-Dkey=value".
    """

    def __init__(
        self, directory: Path, obtain: Callable[[str], apache.Installation] = apache.obtain
    ) -> None:
        self._directory = directory
        self._obtain = obtain
        self._numbers = count(1)
        self._processes: list[ChildProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()

    def namesrv(
        self, version: str, *, jvm: Sequence[str] = (), **properties: str | int | bool
    ) -> Server:
        settings = {"listenPort": free_port()} | properties
        return self._server(version, NAMESRV, (*NAMESRV_MEMORY, *SERVER_JVM, *jvm), settings)

    def broker(
        self,
        version: str,
        namesrv_address: str,
        *,
        jvm: Sequence[str] = (),
        **properties: str | int | bool,
    ) -> Server:
        settings = {
            "listenPort": free_port(BROKER_NEIGHBOURS),
            "namesrvAddr": namesrv_address,
            **BROKER_DEFAULTS,
            **properties,
        }
        options = (*BROKER_MEMORY, *SERVER_JVM, *BROKER_JVM, *jvm)
        main = apache.releases()[version].broker_class
        assert main is not None, f"{version} has clients only"
        return self._server(version, main, options, settings)

    def proxy(self, namesrv_address: str) -> Server:
        """Starts the proxy that serves gRPC clients, in front of the brokers of a name server."""
        home, port = self._home("proxy"), free_port()
        file = home / "conf" / "rmq-proxy.json"
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": namesrv_address,
            "grpcServerPort": port,
            "remotingListenPort": free_port(),
            "localServeAddr": "127.0.0.1",
        }
        file.write_text(json.dumps(settings))
        process = self._java(PROXY, PROXY_MAIN, PROXY_MEMORY, home, ("-pc", str(file)))
        process.wait_for_line("startup successfully", START_DEADLINE)
        return Server(process, port, home)

    def client(
        self, version: str, program: str, *arguments: str | int, jvm: Sequence[str] = ()
    ) -> ChildProcess:
        """Starts one of the programs in tests/interop/java."""
        home = self._home(program)
        release = apache.releases()[version].client
        return self._java(release, program, (*CLIENT_MEMORY, *jvm), home, arguments)

    def program(
        self, version: str, program: str, *arguments: str | int, jvm: Sequence[str] = ()
    ) -> ChildProcess:
        """Starts one of these programs with the jars of the servers."""
        memory = (*CLIENT_MEMORY, *jvm)
        return self._java(version, program, memory, self._home(program), arguments)

    def executable(self, path: Path, *arguments: str | int) -> ChildProcess:
        """Starts a program that needs no Java; it has a home of its own as well."""
        home = self._home(path.name)
        process = ChildProcess(home.name, [str(path), *map(str, arguments)], _environment(home))
        self._processes.append(process)
        return process

    def mqadmin(
        self,
        version: str,
        *arguments: str | int,
        namesrv: str | None = None,
        jvm: Sequence[str] = (),
        timeout: float = 60,
    ) -> str:
        """What the command printed; its errors, which leave exit code 0, raise ProcessFailed."""
        home = self._home("mqadmin")
        address = () if namesrv is None else (f"-Drocketmq.namesrv.addr={namesrv}",)
        options = (*CLIENT_MEMORY, *address, *jvm)
        release = apache.releases()[version].client
        process = self._java(release, MQADMIN, options, home, arguments)
        printed = "\n".join(process.wait(timeout))
        if any("Exception" in line for line in process.stderr):
            raise process.failure(f"failed at {arguments}")
        return printed

    def _server(
        self,
        version: str,
        main: str,
        jvm: Sequence[str],
        settings: Mapping[str, str | int | bool],
    ) -> Server:
        home = self._home(main.rpartition(".")[2])
        port = int(settings["listenPort"])
        file = home / "server.properties"
        file.write_text(_properties(settings))
        process = self._java(version, main, jvm, home, ("-c", str(file)))
        try:
            _await_boot(process, port)
        except ProcessFailed as failed:
            failed.add_note(_log_tail(home))
            raise
        return Server(process, port, home)

    def _home(self, purpose: str) -> Path:
        home = self._directory / f"{next(self._numbers)}-{purpose}"
        (home / "conf").mkdir(parents=True)
        (home / "tmp").mkdir()
        for file in LOGBACK_4:
            (home / "conf" / file).write_text(LOGBACK.format(package=""))
        shaded = LOGBACK.format(package="org.apache.rocketmq.logging.")
        (home / "conf" / LOGBACK_5).write_text(shaded)
        return home

    def _java(
        self,
        version: str,
        main: str,
        jvm: Sequence[str],
        home: Path,
        arguments: Sequence[str | int],
    ) -> ChildProcess:
        installation = self._obtain(version)
        places = (f"-Duser.home={home}", f"-Djava.io.tmpdir={home / 'tmp'}")
        command = [apache.tool("java"), *JVM, *places, *_archived(installation), *jvm]
        command += ["-cp", installation.classpath(home / "conf"), main, *map(str, arguments)]
        name = f"{home.name} of RocketMQ {installation.release.version}"
        process = ChildProcess(name, command, _environment(home), home)
        self._processes.append(process)
        return process


def _archived(installation: apache.Installation) -> tuple[str, ...]:
    """Options for the archive of classes; what the JVM has to say of it goes nowhere."""
    if not installation.archive.exists():
        return ()
    return (
        f"-XX:SharedArchiveFile={installation.archive}",
        "-Xlog:cds=off",
        "-Xlog:class+path=off",
    )


def _environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    homes = dict.fromkeys(("ROCKETMQ_HOME", "RMQ_PROXY_HOME", "HOME"), str(home))
    return kept | homes


def _properties(settings: Mapping[str, str | int | bool]) -> str:
    return "".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}\n"
        for key, value in settings.items()
    )


def _await_boot(process: ChildProcess, port: int) -> None:
    deadline = time.monotonic() + START_DEADLINE
    process.wait_for_line("boot success", START_DEADLINE)
    while not accepts_connections(port):
        if time.monotonic() > deadline:
            raise process.failure(f"does not listen on port {port}")
        time.sleep(0.02)


def _log_tail(home: Path) -> str:
    log = home / "logs" / "rocketmq.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"The end of {log}:", *lines[-20:]])
