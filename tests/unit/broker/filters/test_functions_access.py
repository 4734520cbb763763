"""Who may register filter functions, which are code that the broker runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bolide.auth.plain.access import PlainAccess
from bolide.auth.plain.files import AclPlaces
from bolide.broker.filters.functions import FilterFunctions, FilterHandlers
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.filters import FilterFunctionHeader
from bolide.protocol.refusals import NoPermission
from bolide.protocol.signature import ACCESS_KEY
from bolide.remoting.dispatch import Request
from tests.support.aio import on_loop

ACL = """
accounts:
- {accessKey: publisher, secretKey: secret-of-pub, whiteRemoteAddress: 10.1.0.1}
- {accessKey: administrator, secretKey: secret-of-admin, admin: true, whiteRemoteAddress: 10.1.0.1}
"""


class NoFunctions:
    """Must not be reached."""

    async def update(self, name: str, source: str) -> None:
        pytest.fail(f"registered {name}")

    async def delete(self, name: str) -> None:
        pytest.fail(f"deleted {name}")


@pytest.mark.parametrize("key", ["publisher", "administrator"])
@on_loop
async def test_a_white_listed_address_brings_no_code_without_a_signature(
    tmp_path: Path, key: str
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACL)
    access = PlainAccess(AclPlaces.of(str(tmp_path), None, None))
    handlers = FilterHandlers(cast(FilterFunctions, NoFunctions()), access)
    fields = {"name": "f", ACCESS_KEY: key}
    frame = Frame(code=RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, fields=fields, body=b"import os")
    connection: Any = SimpleNamespace(peer="10.1.0.1:5000")
    request = Request(FilterFunctionHeader("f"), frame, connection)
    for call in (handlers.update, handlers.delete):
        with pytest.raises(NoPermission, match=rf"{key} \(not verified\) at 10.1.0.1"):
            await call(request)
