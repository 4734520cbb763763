"""`View`: one opened page, with the session it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit
from zoneinfo import ZoneInfo

from nicegui import Client, json, ui

from bolide.console.access.sessions import Session
from bolide.console.languages import Language, Translate
from bolide.console.service import Console
from bolide.errors import BolideError
from bolide.operations.declaration import Operation, Role
from bolide.operations.views import reason_of

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class View:
    """What the functions of a page get: operations, texts, and the state in the URL."""

    console: Console
    session: Session
    client: Client
    language: Language
    t: Translate
    time_zone: ZoneInfo
    address: str
    """Of the browser."""
    query: dict[str, str]
    """Filters, tab and page number of this page, from its URL; change them with `set_query`."""
    path: str = "/"

    async def run(self, operation: Operation[P, T], *args: P.args, **arguments: P.kwargs) -> T:
        """Run an operation for the user of this page; parameters by name.

        Raises:
            SessionEnded: the session is over.
            ConfirmationNeeded: it wants `run_confirmed`; use `dialogs.confirm_and_run`.
            BolideError: it failed.
        """
        return await self._run(operation, arguments, None)

    async def run_confirmed(
        self, confirmation: str, operation: Operation[P, T], *args: P.args, **arguments: P.kwargs
    ) -> T:
        """Run an operation whose effect the user has seen; see `preview`."""
        return await self._run(operation, arguments, confirmation)

    async def preview(self, operation: Operation[Any, Any], **arguments: object) -> tuple[Any, str]:
        """What an operation would do, and the token that confirms it."""
        return await self.console.preview(
            self.session, operation, arguments, source=f"console {self.address}"
        )

    def may(self, role: Role) -> bool:
        """Whether to show what needs this role; `run` checks it again."""
        return self.session.role >= role

    def set_query(self, *, push: bool = False, **values: object) -> None:
        """Put filters into the URL, without loading the page again; empty ones are left out.

        Args:
            push: what was shown before is a page to go back to: for searches that are submitted
                and for page turns, not for what changes with each key.
            values: the filters.
        """
        before = dict(self.query)
        for key, value in values.items():
            if value is None or value in {"", False}:
                self.query.pop(key, None)
            else:
                self.query[key] = str(value)
        url = self.path + (f"?{urlencode(self.query)}" if self.query else "")
        change = "pushState" if push and self.query != before else "replaceState"
        with self.client:
            self.client.sub_pages_router.current_path = url
            self.client.run_javascript(
                f"history.{change}({{page: {json.dumps(url)}}}, '', {json.dumps(url)})"
            )

    def tell(self, text: str) -> None:
        """Show that something was done."""
        with self.client:
            ui.notify(text, type="positive", position="top-right", timeout=4000)

    def tell_error(self, error: BaseException | str) -> None:
        """Show why something was not done."""
        text = error if isinstance(error, str) else reason_of(error)
        with self.client:
            ui.notify(text, type="negative", position="top-right", timeout=10_000, close_button="✕")

    def copy(self, text: str) -> None:
        """Put a text on the clipboard of the browser."""
        with self.client:
            ui.clipboard.write(text)
            ui.notify(self.t("Copied"), position="top-right", timeout=1500)

    def open(self, path: str) -> None:
        """Go to another page of the console."""
        with self.client:
            ui.navigate.to(path)

    async def _run(
        self, operation: Operation[Any, T], arguments: Mapping[str, Any], confirmation: str | None
    ) -> T:
        return await self.console.run(
            self.session,
            operation,
            arguments,
            source=f"console {self.address}",
            confirmation=confirmation,
        )


async def attempt(view: View, action: Any) -> bool:
    """Await something a user asked for; a failure is shown. Tells whether it succeeded."""
    try:
        await action
    except BolideError as error:
        view.tell_error(error)
        return False
    return True


def parse_url(url: str) -> tuple[str, dict[str, str]]:
    """Path and query of a URL of this site."""
    parts = urlsplit(url)
    return parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))
