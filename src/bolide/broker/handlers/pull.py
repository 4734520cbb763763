"""Pulls, as requests."""

from bolide.broker.filters.filters import Judged, NotCompiled
from bolide.broker.handlers.judged_pulls import JudgedPulls
from bolide.broker.pulls import Pull, Pulls
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.pull import PullHeader
from bolide.remoting.dispatch import Later, Reply, Request, handles


class PullHandlers:
    """Answers pulls, those that a filter function has to judge among them."""

    def __init__(self, pulls: Pulls) -> None:
        parts = pulls.parts
        self._pulls = pulls
        self._filters = parts.filters
        self._background = parts.background
        self._judged = JudgedPulls(
            parts.filters.functions,
            parts.arrivals,
            read=pulls.read_anyhow,
            end=lambda pull: parts.store.max_offset(pull.header.topic, pull.header.queue_id),
            reset=pulls.reset,
            reply=pulls.reply,
        )

    @handles(PullHeader, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, request: Request[PullHeader]) -> Reply | Later:
        try:
            pull = self._pulls.admitted(request)
        except NotCompiled as exc:
            return self._background.answer(self._compile_and_serve(request, exc.text))
        return self._pulls.reset(pull) or self._serve(pull)

    def _serve(self, pull: Pull) -> Reply | Later:
        if isinstance(pull.wanted, Judged):
            return self._background.answer(self._judged.serve(pull, self._pulls.seconds(pull)))
        return self._pulls.serve(pull)

    async def _compile_and_serve(self, request: Request[PullHeader], text: str) -> Reply:
        pull = None
        while pull is None:
            await self._filters.compile([text])
            try:
                pull = self._pulls.admitted(request)
            except NotCompiled as exc:  # the group wants something else by now
                text = exc.text
        seconds = self._pulls.seconds(pull)
        return self._pulls.reset(pull) or await self._judged.serve(pull, seconds)
