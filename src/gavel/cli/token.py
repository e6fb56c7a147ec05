"""`gavel token`: create, list and revoke tokens; a new one comes with the line that its user or agent needs."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, print_json, table
from gavel.cli.words import printable, span
from gavel.errors import InputError
from gavel.limits import LONGEST_SECONDS

if TYPE_CHECKING:
    from gavel.client.views import NewTokenView, TokenView

DAY, HOUR = 86_400.0, 3600.0
PLACEHOLDER = "HOST:PORT"
"""In place of an address that neither the scheduler nor we know."""

app = typer.Typer(no_args_is_help=True)

Days = Annotated[
    float | None,
    typer.Option(help="How long it is valid. [default: 90]", min=0.001, max=LONGEST_SECONDS // DAY, metavar="DAYS"),
]


@app.callback()
def _group() -> None:
    """Create, list and revoke tokens.

    Example: gavel token create --join --uses 2
    """


@app.command("create")
def create_command(
    user: Annotated[str, typer.Option(help="Whose token. [default: your own]", metavar="NAME")] = "",
    name: Annotated[str, typer.Option(help="To recognise it by.", metavar="NAME")] = "",
    role: Annotated[
        str, typer.Option(help="At most the user's own, or `metrics`. [default: the user's own]", metavar="ROLE")
    ] = "",
    days: Days = None,
    join: Annotated[bool, typer.Option("--join", help="A token with which agents join the cluster.")] = False,
    uses: Annotated[
        int | None,
        typer.Option(help="With --join: how many agents. [default: 1]", min=1, max=2**31, metavar="COUNT"),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            help="With --join: how long it is valid. [default: 1]",
            min=0.001,
            max=LONGEST_SECONDS // HOUR,
            metavar="HOURS",
        ),
    ] = None,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Create a token; it is shown once.

    Examples: gavel token create --user ann --days 30; gavel token create --join --uses 8 --hours 2
    """
    if join and (role or days is not None):
        raise InputError("a join token has no --role and no --days; --hours says how long it is valid")
    if not join and (uses is not None or hours is not None):
        raise InputError("--uses and --hours are for --join; --days says how long another token is valid")
    seconds = (hours or 0.0) * HOUR if join else (days or 0.0) * DAY
    with connect(scheduler) as client:
        address = client.address
        new = client.create_token(user=user, name=name, role="agent" if join else role, seconds=seconds, uses=uses or 0)
    line = join_line(new, address) if join else login_line(new, address)
    if as_json:
        print_json({**new.document(), "command": line})
    else:
        print(printable(_receipt(new, line, join=join)))


def _receipt(new: NewTokenView, line: str, *, join: bool) -> str:
    token = new.view
    if join:
        agents = "one agent" if token.uses_left == 1 else f"{token.uses_left:,} agents"
        return f"join token {token.id} for {agents}{valid_for(token)}. On each new server run:\n  {line}"
    return (
        f"token {token.id} for {token.user} ({token.role}){valid_for(token)}; it is not shown again:\n  {new.token}\n"
        f"to log in with it:\n  {line}"
    )


def valid_for(token: TokenView) -> str:
    """How long a token counts, as the end of a clause."""
    return f", valid for {span(token.expires - time.time() + 1)}" if token.expires else ""


def login_line(new: NewTokenView, address: str) -> str:
    """The command with which the token's user logs in."""
    return _line(["gavel", "login", _address(new, address)], new)


def join_line(new: NewTokenView, address: str) -> str:
    """The command with which an agent joins."""
    return _line(["gavel", "worker", "--join", _address(new, address)], new)


def _line(words: list[str], new: NewTokenView) -> str:
    pinned = ["--fingerprint", new.fingerprint] if new.fingerprint else []
    one_line = ["".join(word.split()) for word in [*words, "--token", new.token, *pinned]]
    return " ".join(map(shlex.quote, one_line))


def _address(new: NewTokenView, reached_at: str) -> str:
    """As the operator configured it, else as we reached it; a UNIX socket is of no use elsewhere."""
    return new.address or (PLACEHOLDER if reached_at.startswith("unix:") else reached_at)


@app.command("list")
def list_command(
    everyone: Annotated[bool, typer.Option("--all", help="Those of all users.")] = False,
    user: Annotated[str, typer.Option(help="Those of this user.", metavar="NAME")] = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """List your tokens, without the tokens themselves."""
    if everyone and user:
        raise InputError("give either --all or --user, not both")
    with connect(scheduler) as client:
        found = client.tokens("*" if everyone else user)
    if as_json:
        print_json({"tokens": [token.document() for token in found]})
        return
    if not found:
        print("no tokens; `gavel token create` makes one")
        return
    now = time.time()
    rows = [
        [token.id, token.user, token.name, token.role, _state(token, now), _last_use(token, now)] for token in found
    ]
    console().print(table(["id", "user", "name", "role", "state", "last used"], rows, left=6))


def _state(token: TokenView, now: float) -> str:
    if token.revoked:
        return "revoked"
    if token.expires is None:
        return "valid"
    if token.expires <= now:
        return "expired"
    uses = f", {token.uses_left:,} uses left" if token.role == "agent" else ""
    return f"expires in {span(token.expires - now)}{uses}"


def _last_use(token: TokenView, now: float) -> str:
    if token.last_used is None:
        return "never"
    place = f" from {token.last_address}" if token.last_address else ""
    return f"{span(now - token.last_used)} ago{place}"


@app.command("revoke")
def revoke_command(
    id: Annotated[  # noqa: A002 - the word for it everywhere
        str, typer.Argument(help="The id of the token, as `gavel token list` shows it.", metavar="ID")
    ],
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a token count no longer, at once."""
    if id.startswith(("gvl_", "gvj_", "gvs_")):
        raise InputError("give the id of the token, not the token itself; `gavel token list` shows ids")
    with connect(scheduler) as client:
        found = client.revoke_token(id)
    if as_json:
        print_json({"tokens": [token.document() for token in found]})
    else:
        print(printable(f"token {id} is revoked"))
