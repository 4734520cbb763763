"""Errors as HTTP answers: a status, the kind of error and its text, which says what to do."""

import json
from collections.abc import Iterable

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from bolide.admin.errors import (
    AdminError,
    AttributeUnknown,
    BadAddress,
    BrokerUnknown,
    ClusterNotFound,
    GroupOffline,
    GroupUnknown,
    MessageNotFound,
    NoOffsets,
    OffsetOutOfRange,
    QueueUnknown,
)
from bolide.console.access.login import LoginFailed, LoginUnchecked, TooManyAttempts
from bolide.console.service import PasswordToChange, SessionEnded
from bolide.errors import BolideError, ConfigError
from bolide.operations.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    NotFound,
    NotSupported,
    RoleTooLow,
    Unknown,
)
from bolide.operations.views import reason_of
from bolide.protocol.refusals import (
    BrokerNotFound,
    ConsumerNotOnline,
    GroupNotFound,
    InvalidParameter,
    NoMessage,
    NoPermission,
    QueryNotFound,
    Refusal,
    RequestCodeNotSupported,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
)
from bolide.remoting.errors import CallTimedOut, RemotingError

_NOT_FOUND = (
    NotFound,
    BrokerNotFound,
    BrokerUnknown,
    ClusterNotFound,
    GroupNotFound,
    GroupUnknown,
    MessageNotFound,
    NoMessage,
    NoOffsets,
    OffsetOutOfRange,
    QueryNotFound,
    QueueUnknown,
    SubscriptionNotFound,
    TopicNotFound,
)
_STATUS: Iterable[tuple[tuple[type[BolideError], ...], int]] = (
    ((SessionEnded, LoginFailed), 401),
    ((TooManyAttempts,), 429),
    ((RoleTooLow, NoPermission, PasswordToChange), 403),
    ((ConfirmationNeeded,), 428),
    ((BadInput, ConfigError, BadAddress, AttributeUnknown, InvalidParameter), 422),
    ((Conflict, TopicExists, GroupOffline, ConsumerNotOnline), 409),
    ((Unknown,), 503),
    (_NOT_FOUND, 404),
    ((NotSupported, RequestCodeNotSupported), 501),
    ((CallTimedOut,), 504),
    ((RemotingError, LoginUnchecked), 503),
    ((Refusal,), 502),
    ((AdminError,), 409),
)


def status_of(error: BolideError) -> int:
    return next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)


class AsciiJSONResponse(JSONResponse):
    """JSON of any text: one that repeats half a character has no UTF-8."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_of(error: BolideError) -> JSONResponse:
    content: dict[str, object] = {"error": type(error).__name__, "message": reason_of(error)}
    headers = {}
    match error:
        case ConfirmationNeeded():
            content |= {"effect": jsonable_encoder(error.effect), "confirmation": error.token}
        case BadInput():
            content["field"] = error.field
        case TooManyAttempts():
            headers["Retry-After"] = str(error.seconds)
        case Refusal():
            content["code"] = int(error.code)
    return AsciiJSONResponse(content, status_of(error), headers)


def answer_errors(app: FastAPI) -> None:
    """Let the app answer errors of operations so."""

    @app.exception_handler(RequestValidationError)
    async def answer_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        """In the shape of other errors: the first parameter that is wrong, and why."""
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return answer_of(BadInput(field, first["msg"]))

    @app.exception_handler(BolideError)
    async def answer(_: Request, error: BolideError) -> JSONResponse:
        return answer_of(error)

    @app.exception_handler(RequestValidationError)
    async def answer_malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent, a password for example, is not repeated.
        found = [{key: each[key] for key in ("type", "loc", "msg")} for each in error.errors()]
        first = found[0]
        message = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        content = {"error": "BadInput", "message": message, "detail": found}
        return AsciiJSONResponse(content, 422)
