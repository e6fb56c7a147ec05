"""`gavel login` and `gavel whoami`: become known to a scheduler, and ask who it takes us for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from getpass import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import ActingFor, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.words import printable, span
from gavel.client.contexts import ContextFile, Contexts, SchedulerContext, Trust
from gavel.errors import InputError

if TYPE_CHECKING:
    from gavel.client.access import SchedulerAccess
    from gavel.client.views import IdentityView, UserView

LOGIN_TIMEOUT_SECONDS = 30.0
STANDARD_INPUT = "-"


def login_command(
    address: Annotated[str, typer.Argument(help="The scheduler.", metavar="HOST[:PORT]")],
    token: Annotated[
        str | None,
        typer.Option(
            help="Your token; - reads it from standard input. [default: GAVEL_TOKEN, or a question]", metavar="TOKEN"
        ),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="The fingerprint of its authority.", metavar="sha256:...")
    ] = None,
    ca: Annotated[
        str | None,
        typer.Option(help="A file with its authority, or `system` for those that this machine trusts.", metavar="FILE"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the context. [default: the host]", metavar="NAME")] = None,
    as_json: AsJson = False,
) -> None:
    """Log in to a scheduler with a token.

    The address, the scheduler's authority and the token are stored as the current context, readable for you alone.
    Without --fingerprint or --ca, you are asked whether the fingerprint is right. On its own machine, a scheduler's
    UNIX socket needs no token: gavel login unix:PATH.

    Example: gavel login gpu-head --token gvl_... --fingerprint sha256:...
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # see remote.connect
    from gavel.client.channel import completed  # noqa: PLC0415 - loads the network library

    if fingerprint and ca:
        raise InputError("give either --fingerprint or --ca, not both")
    file = ContextFile.own()
    access = completed(_trusted(address, fingerprint, ca, file.read(), may_ask=token != STANDARD_INPUT))
    access = _with_token(access, token)
    identity = _identity(access)
    changed = file.change(lambda contexts: contexts.adding(_context(access, identity, contexts, name)))
    context = changed.named(changed.current)
    if as_json:
        print_json({"context": context.document(), "identity": identity.document()})
    else:
        print(printable(f"logged in at {access.address} as {described(identity)}; context {context.name}"))


def _trusted(
    given: str, fingerprint: str | None, ca: str | None, contexts: Contexts, *, may_ask: bool
) -> SchedulerAccess:
    """How the scheduler will be recognised: as asked for, as known from an earlier login, or as confirmed now."""
    from gavel.client.access import UNIX, SchedulerAccess, normal_address, read_authority  # noqa: PLC0415

    address = normal_address(given.strip())
    if address.startswith(UNIX):
        return SchedulerAccess(address=address)
    if ca == "system":
        return SchedulerAccess(address=address, trust=Trust.SYSTEM)
    if ca is not None:
        return SchedulerAccess(address=address, trust=Trust.AUTHORITY, authority=read_authority("--ca", ca))
    known = contexts.at(address)
    if fingerprint is None and known is not None and known.trust is not Trust.NONE:
        return SchedulerAccess(
            address=address,
            trust=known.trust,
            authority=known.authority,
            fingerprint=known.fingerprint,
            server_name=known.server_name,
        )
    pin = fingerprint if fingerprint is not None else _confirmed(address, may_ask=may_ask)
    return SchedulerAccess(address=address, trust=Trust.AUTHORITY, fingerprint=pin)


def _confirmed(address: str, *, may_ask: bool) -> str:
    """The fingerprint that the scheduler shows, if a person says that it is right."""
    from gavel.client.trust import fetch_chain, fingerprint  # noqa: PLC0415

    if not (may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"give the fingerprint of the scheduler at {address}: --fingerprint sha256:…; "
            "the administrator who made your token has it"
        )
    shown = fingerprint(fetch_chain(address)[-1])
    print(f"The authority of the scheduler at {address} has the fingerprint\n  {shown}", file=sys.stderr)
    print("Is it the one that you were given? Type yes, or the fingerprint: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("yes", shown):
        raise InputError(f"not logged in at {address}: the fingerprint was not confirmed; nothing was sent")
    return shown


def _with_token(access: SchedulerAccess, given: str | None) -> SchedulerAccess:
    from gavel.client.access import check_words  # noqa: PLC0415

    token = "" if access.local and given is None else _token(given)
    if not token and not access.local:
        raise InputError("the token is empty; give --token, or set GAVEL_TOKEN")
    found = replace(access, token=token)
    check_words(found)
    return found


def _token(given: str | None) -> str:
    if given == STANDARD_INPUT:
        return sys.stdin.readline().strip()
    if given is not None:
        return given.strip()
    if found := os.environ.get("GAVEL_TOKEN", "").strip():
        return found
    if not sys.stdin.isatty():
        raise InputError("give your token: --token, --token - for standard input, or GAVEL_TOKEN")
    return getpass("token: ").strip()


def _identity(access: SchedulerAccess) -> IdentityView:
    from gavel.client.connection import Connection  # noqa: PLC0415 - loads the network library
    from gavel.client.messages import from_identity  # noqa: PLC0415
    from gavel.wire import gavel_pb2 as pb  # noqa: PLC0415

    with closing(Connection(access, LOGIN_TIMEOUT_SECONDS, patience=0.0)) as connection:
        return from_identity(connection.ask("WhoAmI", pb.WhoAmIRequest()))


def _context(access: SchedulerAccess, identity: IdentityView, contexts: Contexts, name: str | None) -> SchedulerContext:
    return SchedulerContext(
        name=name or free_name(access.address, identity.user, contexts),
        address=access.address,
        trust=access.trust,
        authority=access.authority,
        fingerprint=access.fingerprint,
        server_name=access.server_name,
        token=access.token,
        user=identity.user,
    )


def free_name(address: str, user: str, contexts: Contexts) -> str:
    """The host, or more if another user or scheduler has a context of that name.

    >>> free_name("head:7077", "ann", Contexts())
    'head'
    """
    host = "local" if address.startswith("unix:") else address.rpartition(":")[0].strip("[]")
    candidates = [host, f"{user}@{host}", f"{user}@{address.replace('/', '_')}"]
    for candidate in candidates:
        known = contexts.known.get(candidate)
        if known is None or (known.address, known.user) == (address, user):
            return candidate
    return candidates[-1]


def described(identity: IdentityView | UserView) -> str:
    """A user with role and teams, as in: ann (user, team nlp)."""
    name = getattr(identity, "user", "") or getattr(identity, "name", "") or "an agent"
    parts = [
        identity.role,
        _some("team", identity.teams),
        f"leads {', '.join(identity.leads)}" if identity.leads else "",
    ]
    return f"{name} ({', '.join(filter(None, parts))})"


def _some(what: str, names: Sequence[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def whoami_command(acting_for: ActingFor = "", scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Show who the scheduler takes you for.

    Example: gavel whoami
    """
    with connect(scheduler, acting_for=acting_for) as client:
        address, identity = client.address, client.whoami()
    if as_json:
        print_json({**identity.document(), "address": address})
        return
    by = f", by {identity.by}" if identity.by else ""
    left = f"; the token expires in {span(identity.expires - time.time())}" if identity.expires else ""
    print(printable(f"{described(identity)}{by} at {address}{left}"))
