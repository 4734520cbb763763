"""Finds the files of access rules, reads them, and notices that one has changed."""

import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolide.auth.plain.documents import AclDocument, read_document
from bolide.auth.plain.rules import Rules
from bolide.auth.plain.yaml_nodes import MAX_SIZE, BadAclFile
from bolide.errors import ConfigError

log = logging.getLogger(__name__)

DEFAULT_FILE = Path("conf") / "plain_acl.yml"
_SUFFIXES = {".yml", ".yaml"}
_TOOLS_FILE = "tools.yml"
"""Credentials of mqadmin, which RocketMQ keeps beside the rules."""

State = tuple[tuple[Path, int, int, int, int], ...]
"""Path, inode, size, time of change and of modification of each file."""


@dataclass(frozen=True, slots=True)
class AclPlaces:
    """Where the files are."""

    file: Path
    """`plain_acl.yml`; new accounts are added to it."""
    directory: Path
    """Its files of YAML are read too, those of its subdirectories included."""

    @classmethod
    def of(cls, home: str | None, file: Path | None, config_path: Path | None) -> "AclPlaces":
        """Find the places.

        Args:
            home: the installation directory of RocketMQ; its `conf` has the files.
            file: another path of `plain_acl.yml`, relative to `home`.
            config_path: the configuration file of the broker; without a home, the files are
                beside it.

        Raises:
            ConfigError: none of the three is given.
        """
        if home:
            return cls(Path(home) / (file or DEFAULT_FILE), Path(home) / "conf" / "acl")
        if file is not None and file.is_absolute():
            return cls(file, file.parent / "acl")
        if config_path is not None:
            beside = config_path.absolute().parent
            return cls(beside / (file or DEFAULT_FILE.name), beside / "acl")
        raise ConfigError(
            "there is no place for plain_acl.yml: set ROCKETMQ_HOME, whose conf"
            " directory has it, or rocketmq.acl.plain.file to its absolute path"
        )


class AclFiles:
    """The files; all methods block."""

    def __init__(self, places: AclPlaces) -> None:
        self.places = places
        self._warned: set[Path] = set()

    def paths(self) -> list[Path]:
        """All files; those of the directory come first, as in RocketMQ."""
        found = sorted(self._in_directory())
        if self.places.file.is_file() and self.places.file not in found:
            found.append(self.places.file)
        return found

    def _in_directory(self) -> Iterator[Path]:
        for folder, below, names in os.walk(self.places.directory):
            # Orchestrators keep the versions of a mounted directory in hidden ones.
            below[:] = [name for name in below if not name.startswith(".")]
            for name in names:
                path = Path(folder) / name
                if path.suffix in _SUFFIXES and name != _TOOLS_FILE:
                    yield path

    def state(self) -> State:
        """Changes whenever a file is changed, added or removed."""
        found = []
        for path in self.paths():
            try:
                known = path.stat()
            except OSError:
                continue  # removed since it was listed
            found.append((path, known.st_ino, known.st_size, known.st_ctime_ns, known.st_mtime_ns))
        return tuple(found)

    def load(self) -> Rules:
        """Read all files.

        Raises:
            BadAclFile: one is invalid or cannot be read; the text names it.
        """
        return Rules({path: self.read(path)[0] for path in self.paths()})

    def require(self) -> Rules:
        """As `load`, at the start of a broker.

        Raises:
            ConfigError: there is no file.
        """
        if not self.paths():
            raise ConfigError(
                f"aclEnable=true: neither {self.places.file} nor a file in"
                f" {self.places.directory} exists; create it, or set rocketmqHome"
            )
        return self.load()

    def read(self, path: Path) -> tuple[AclDocument, bytes]:
        """A file and its text. Raises BadAclFile."""
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read(MAX_SIZE + 1)
        except OSError as exc:
            raise BadAclFile(f"{path}: {exc.strerror}") from exc
        if mode & stat.S_IROTH and path not in self._warned:
            self._warned.add(path)
            log.warning("%s holds secrets and every user can read it: chmod 600 %s", path, path)
        return read_document(data, str(path)), data
