"""Errors as HTTP answers: a status, the kind of error and its text, which says what to do."""

from collections.abc import Iterable

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
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
from bolide.console.access.login import LoginFailed, TooManyAttempts
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
    ((RemotingError,), 503),
    ((Refusal,), 502),
    ((AdminError,), 409),
)


def status_of(error: BolideError) -> int:
    return next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)


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
    return JSONResponse(content, status_of(error), headers)


def answer_errors(app: FastAPI) -> None:
    """Let the app answer errors of operations so."""

    @app.exception_handler(BolideError)
    async def answer(_: Request, error: BolideError) -> JSONResponse:
        return answer_of(error)
