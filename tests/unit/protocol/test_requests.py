"""The table of requests."""

import pytest

from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.requests import NO_ROLE, REQUESTS, RequestKind, Role

UNUSED = {13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302}
TO_CLIENTS = {39, 40, 220, 221, 307, 309, 326, 200073}
TO_NAMESRV = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224}
TO_NAMESRV |= {304, 311, 312, 313, 318, 319, 322, 327, 901, 904}
ASKED_OF_BOTH = {6030, 6031}
TO_NAMESRV |= ASKED_OF_BOTH
TO_CONTROLLER = {904, 1001, 1002, 1003, 1004, 1005, 1006, *range(1009, 1019)}


@pytest.mark.parametrize("code", RequestCode)
def test_every_code_has_its_row(code: RequestCode) -> None:
    assert code in REQUESTS


def test_codes_nobody_answers_carry_nothing() -> None:
    unused = {code: kind for code, kind in REQUESTS.items() if kind.answered_by is NO_ROLE}
    assert set(unused) == UNUSED
    assert set(unused.values()) == {RequestKind(answered_by=NO_ROLE)}


@pytest.mark.parametrize(
    ("role", "codes"),
    [(Role.CLIENT, TO_CLIENTS), (Role.NAMESRV, TO_NAMESRV), (Role.CONTROLLER, TO_CONTROLLER)],
)
def test_role_answers_its_codes(role: Role, codes: set[int]) -> None:
    assert {code for code, kind in REQUESTS.items() if role in kind.answered_by} == codes


def test_broker_answers_the_rest_and_what_it_passes_on() -> None:
    answered = {code for code, kind in REQUESTS.items() if Role.BROKER in kind.answered_by}
    others = TO_CLIENTS | TO_NAMESRV | TO_CONTROLLER | UNUSED
    assert answered == set(RequestCode) - others | {307, 309} | ASKED_OF_BOTH


def test_v2_sends_use_short_names() -> None:
    short = {code for code, kind in REQUESTS.items() if kind.short_names}
    assert short == {310, 320, 325}
    assert {REQUESTS[code].header for code in short} == {SendHeader}


def test_row_without_header_says_so_by_type() -> None:
    assert REQUESTS[RequestCode.HEART_BEAT].header is NoHeader
