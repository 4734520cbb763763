"""`/api/v1/session` and `/api/v1/accounts`: who is logged in, and the console's own accounts."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response

from bolide.console.access.accounts import Account
from bolide.console.access.sessions import Session
from bolide.console.account_changes import AccountChanges
from bolide.console.api.routes import client_address
from bolide.console.service import Console
from bolide.console.web.cookies import clear_session_cookie, set_session_cookie
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """Who is logged in."""

    user: str
    role: str
    """viewer, operator or admin."""
    is_of_cluster: bool
    """A user of the cluster; others have an account of the console."""
    must_change_password: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account of the console."""

    name: str
    role: str
    must_change_password: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassword:
    """A one-time password; it is shown only here."""

    name: str
    password: str


def session_router(console: Console) -> APIRouter:  # noqa: C901  one small function a route
    """Log in and out, change one's password, and keep the accounts."""
    router = APIRouter(tags=["session"])
    changes = AccountChanges(console)

    def own(request: Request) -> Session:
        session: Session = request.state.session
        return session

    @router.post("/session")
    async def log_in(
        request: Request,
        response: Response,
        user: Annotated[str, Body(embed=True)],
        password: Annotated[str, Body(embed=True)],
    ) -> SessionView:
        """Log in; the answer sets the cookie of the session."""
        token, session = await console.log_in(user, password, client_address(request), by="api")
        set_session_cookie(response, token, request.scope)
        return session_view(session)

    @router.get("/session")
    async def who_am_i(request: Request) -> SessionView:
        """Who is logged in."""
        return session_view(own(request))

    @router.delete("/session", status_code=204)
    async def log_out(request: Request, response: Response) -> None:
        """Log out: the session ends in all tabs."""
        await console.log_out(own(request), f"api {client_address(request)}")
        clear_session_cookie(response, request.scope)

    @router.put("/session/password", status_code=204)
    async def change_password(
        request: Request,
        current: Annotated[str, Body(embed=True)],
        new: Annotated[str, Body(embed=True)],
    ) -> None:
        """Change one's own password; one's other sessions end."""
        address = client_address(request)
        await changes.change_own_password(own(request), current, new, address, by="api")

    @router.get("/accounts", tags=["accounts"])
    async def list_accounts(request: Request) -> list[AccountView]:
        """List the console's accounts; needs the role `admin`."""
        return [account_view(each) for each in changes.list(own(request))]

    @router.post("/accounts", status_code=201, tags=["accounts"])
    async def create_account(
        request: Request,
        name: Annotated[str, Body(embed=True)],
        role: Annotated[str, Body(embed=True)],
    ) -> NewPassword:
        """Create an account; needs the role `admin`. The answer has its one-time password."""
        password = await changes.create(own(request), name, parsed_role(role))
        return NewPassword(name=name, password=password)

    @router.put("/accounts/{name}/role", status_code=204, tags=["accounts"])
    async def set_role(request: Request, name: str, role: Annotated[str, Body(embed=True)]) -> None:
        """Give an account another role; its sessions end."""
        await changes.set_role(own(request), name, parsed_role(role))

    @router.post("/accounts/{name}/password", tags=["accounts"])
    async def reset_password(request: Request, name: str) -> NewPassword:
        """Replace a forgotten password; its sessions end."""
        return NewPassword(name=name, password=await changes.reset_password(own(request), name))

    @router.delete("/accounts/{name}", status_code=204, tags=["accounts"])
    async def delete_account(request: Request, name: str) -> None:
        """Delete an account; its sessions end."""
        await changes.delete(own(request), name)

    return router


def parsed_role(text: str) -> Role:
    """Raises BadInput."""
    try:
        return Role[text.upper()]
    except KeyError:
        names = ", ".join(role.label for role in Role)
        raise BadInput("role", f"one of {names}") from None


def session_view(session: Session) -> SessionView:
    return SessionView(
        user=session.user,
        role=session.role.label,
        is_of_cluster=session.is_of_cluster,
        must_change_password=session.must_change,
    )


def account_view(account: Account) -> AccountView:
    return AccountView(
        name=account.name, role=account.role.label, must_change_password=account.must_change
    )
