"""The consent of the user to what an operation destroys or moves.

A client that can ask its user is told to ask (elicitation). For other clients the first call
returns the effect and a token, and the second call, with the token, runs the operation. A token is
random, valid once, for a limited time, and for just these arguments and this effect: an agent
cannot confirm what it has not been shown.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bolide.agent_tools.results import as_object, as_text
from bolide.operations.declaration import Operation
from bolide.operations.door import plain

LIFETIME = 600.0
"""Seconds for which a token is valid."""
_MOST_TOKENS = 1_000
_QUESTION = "confirm"
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        _QUESTION: {"type": "boolean", "title": "Do it", "default": False},
    },
    "required": [_QUESTION],
}


@dataclass(frozen=True, slots=True)
class _Issued:
    tool: str
    arguments: str
    door_token: str
    expires: float


class IssuedTokens:
    """The tokens that agents have and have not used yet."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._issued: dict[str, _Issued] = {}

    def issue(self, tool: str, arguments: Mapping[str, Any], door_token: str) -> str:
        """A token for the effect that `door_token` stands for."""
        now = self._now()
        self._issued = {token: each for token, each in self._issued.items() if each.expires > now}
        while len(self._issued) >= _MOST_TOKENS:
            del self._issued[next(iter(self._issued))]
        token = secrets.token_hex(8)
        self._issued[token] = _Issued(tool, _text(arguments), door_token, now + LIFETIME)
        return token

    def redeem(self, token: str, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """What the door takes as confirmation; None if the token is not for this call."""
        found = self._issued.get(token)
        if found is None or (found.tool, found.arguments) != (tool, _text(arguments)):
            return None
        del self._issued[token]
        return found.door_token if found.expires > self._now() else None


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, default=plain, sort_keys=True)


# Asking the user


def can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client shows questions to its user."""
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    able = _shows_forms(context.session.client_capabilities)
    return able and (is_modern or context.session.can_send_request)


def _shows_forms(capabilities: ClientCapabilities | None) -> bool:
    elicitation = capabilities.elicitation if capabilities is not None else None
    if elicitation is None:
        return False
    return elicitation.form is not None or elicitation.url is None


async def ask(
    context: ServerRequestContext[Any, Any], question: str, door_token: str
) -> bool | InputRequiredResult:
    """Whether the user agrees; newer clients get the question as result, and call again."""
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        form = ElicitRequestFormParams(message=question, requested_schema=_FORM)
        return InputRequiredResult(
            input_requests={_QUESTION: ElicitRequest(params=form)}, request_state=door_token
        )
    answer = await context.session.elicit_form(question, _FORM, context.request_id)
    return _agrees(answer)


def answer_in(params: CallToolRequestParams) -> bool | None:
    """What the user answered to the question of the previous call; None if there was none."""
    answer = (params.input_responses or {}).get(_QUESTION)
    if answer is None or params.request_state is None:
        return None
    return isinstance(answer, ElicitResult) and _agrees(answer)


def _agrees(answer: ElicitResult) -> bool:
    return answer.action == "accept" and (answer.content or {}).get(_QUESTION) is True


def question_for(
    operation: Operation[Any, Any], arguments: Mapping[str, Any], effect: object
) -> str:
    """What the user reads: the operation, on what, and its effect."""
    told = {name: "***" if name in operation.secret else value for name, value in arguments.items()}
    given = as_text(as_object(told))
    return f"{operation.summary}\n\n{given}\n\nEffect:\n{as_text(as_object(effect))}"
