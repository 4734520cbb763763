"""The load generator signs its requests as a broker with access control wants them."""

import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import credentials
from benchmarks.generators import SIGNED, compile_generator, run_generator
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.signature import ACCESS_KEY, is_signed_by

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
USER = credentials.USER
PATIENCE = 10.0


class Verifier:
    """A server that answers requests and notes how often their signature was right or wrong."""

    def __init__(self) -> None:
        self.right: dict[int, int] = {}
        self.wrong: list[Frame] = []
        self._threads: list[threading.Thread] = []
        self._last: tuple[str, int] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """After the generator has ended: wait until all that it sent was looked at."""
        with socket.socket() as last:
            last.bind(("127.0.0.1", 0))
            self._last = last.getsockname()
            last.connect(("127.0.0.1", self.port))  # accepted after those of the generator
            self._acceptor.join(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            peer, address = self._listener.accept()
            if address == self._last:
                peer.close()
                return
            thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, peer: socket.socket) -> None:
        decoder = FrameDecoder()
        with peer, suppress(ConnectionError):  # the generator ends with requests under way
            while data := peer.recv(1 << 16):
                for frame in decoder.feed(data):
                    self._note(frame)
                    if not frame.is_one_way:
                        peer.sendall(encode_frame(_answer(frame)))

    def _note(self, frame: Frame) -> None:
        fields = frame.fields or {}
        secret = USER.secret_key.encode()
        is_right = is_signed_by(fields, frame.body, secret, frame.version)
        if is_right and fields[ACCESS_KEY] == USER.access_key:
            self.right[frame.code] = self.right.get(frame.code, 0) + 1
        else:
            self.wrong.append(frame)


def _answer(frame: Frame) -> Frame:
    code, fields = 0, {}
    if frame.code == RequestCode.PULL_MESSAGE:
        code, fields = int(ResponseCode.PULL_NOT_FOUND), {"nextBeginOffset": "7"}
    if frame.code == RequestCode.GET_MAX_OFFSET:
        fields = {"offset": "7"}
    return Frame(code=code, fields=fields, flag=FrameFlag.RESPONSE, opaque=frame.opaque)


@pytest.fixture(scope="module")
def generator() -> Path:
    try:
        return compile_generator("brokerload", SIGNED)
    except subprocess.CalledProcessError:
        pytest.skip("needs the headers of OpenSSL")


@pytest.mark.parametrize(
    ("kind", "limit", "options", "codes"),
    [
        ("send", 50, [], {310}),
        ("send", 50, ["topics=3"], {310}),
        ("send", 50, ["marked=1"], {310}),
        ("send", 64, ["oneway=3"], {310}),
        ("send", 64, ["batch=16"], {320}),
        ("pull", 64, ["filter=TagB"], {11}),
        ("pull", 64, ["filter=n = 3", "type=SQL92"], {11}),
        ("live", 0, ["consumers=2", "rate=1000"], {310, 11, 30}),
    ],
)
def test_every_request_is_signed_right(
    generator: Path, kind: str, limit: int, options: list[str], codes: set[int]
) -> None:
    server = Verifier()
    keys = [f"{name}={text}" for name, text in USER._asdict().items()]
    found = run_generator(
        generator, kind, "127.0.0.1", server.port, 2, 4, 0.3, "bench-signed", 4, 32, limit,
        *options, *keys,
    )  # fmt: skip
    server.close()
    assert (found["failures"], server.wrong) == (0, [])
    assert server.right.keys() == codes


def test_both_keys_are_needed(generator: Path) -> None:
    command = [str(generator), "send", "127.0.0.1", "1", "1", "1", "1", "T", "1", "1", "1"]
    done = subprocess.run([*command, "access_key=a"], check=False, capture_output=True)
    assert done.returncode == 2
