"""The `gavel` command: the table of its verbs, which package each comes with, and how it reports errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from gavel.errors import GavelError, InputError
from gavel.version import __version__

CLIENT, SCHEDULER = "gavel-client", "gavel-scheduler"
"""The packages that verbs come with; the second brings the first along."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: where it is defined, and its summary for `gavel --help`, which does not load it."""

    target: str
    """`module:attribute`: a function, or a Typer with its own commands."""
    summary: str
    package: str = SCHEDULER

    @property
    def module(self) -> str:
        """The module to load when the verb is asked for."""
        return self.target.partition(":")[0]

    @property
    def installed(self) -> bool:
        """Whether the module is there; it is not loaded to find out."""
        return find_spec(self.module) is not None

    def load(self) -> Callable[..., Any] | typer.Typer:
        """Import what performs the verb."""
        found: Callable[..., Any] | typer.Typer = getattr(import_module(self.module), self.target.partition(":")[2])
        return found


VERBS = {
    "policies": Verb("gavel.cli.policies:policies", "List all policies and what they do."),
    "allocate": Verb("gavel.cli.allocate:allocate_command", "Solve one problem: allocation and certificate."),
    "verify": Verb("gavel.cli.verify:verify_command", "Check an answer of `gavel allocate` without a solver."),
    "simulate": Verb("gavel.cli.simulate:simulate_command", "Run a workload in virtual time and print its figures."),
    "sweep": Verb("gavel.cli.sweep:sweep_command", "Compare policies over loads and seeds, on all cores."),
    "estimate": Verb("gavel.cli.estimate:estimate_command", "Estimate how fast a template runs beside others."),
    "profile": Verb("gavel.cli.profile:profile_command", "Measure a command on every type, alone and beside others."),
    "reproduce": Verb("gavel.cli.reproduce:reproduce_command", "Rerun the paper's evaluation and check its claims."),
    "init": Verb("gavel.cli.init:init_command", "Set up TLS and users for a scheduler."),
    "serve": Verb("gavel.cli.serve:serve_command", "Run the scheduler, which assigns jobs to agents."),
    "worker": Verb("gavel.cli.worker:app", "Run jobs on this server for a scheduler."),
    "submit": Verb("gavel.cli.submit:submit_command", "Submit jobs from files, or a command after --.", CLIENT),
    "run": Verb("gavel.cli.run:run_command", "Run a command on the cluster as if it ran here.", CLIENT),
    "jobs": Verb("gavel.cli.jobs:jobs_command", "List unfinished jobs and those that ended in the last hour.", CLIENT),
    "job": Verb("gavel.cli.job:job_command", "Show everything about one job.", CLIENT),
    "logs": Verb("gavel.cli.logs:logs_command", "Print the output of a job.", CLIENT),
    "wait": Verb(
        "gavel.cli.wait:wait_command",
        "Wait until jobs have finished.",
        CLIENT,
    ),
    "cancel": Verb("gavel.cli.job_verbs:cancel_command", "Cancel jobs that have not finished.", CLIENT),
    "hold": Verb(
        "gavel.cli.job_verbs:hold_command",
        "Let jobs wait until they are released.",
        CLIENT,
    ),
    "release": Verb("gavel.cli.job_verbs:release_command", "Let jobs run that are on hold.", CLIENT),
    "requeue": Verb("gavel.cli.job_verbs:requeue_command", "Let jobs save, leave and wait for another turn.", CLIENT),
    "edit": Verb(
        "gavel.cli.edit:edit_command",
        "Change jobs that have not finished.",
        CLIENT,
    ),
    "resubmit": Verb("gavel.cli.edit:resubmit_command", "Submit jobs like earlier ones, with what you change.", CLIENT),
    "checkpoints": Verb("gavel.cli.checkpoints:app", "Remove checkpoints of finished jobs.", CLIENT),
    "cluster": Verb(
        "gavel.cli.cluster:cluster_command", "Show servers, types, the policy and the current round.", CLIENT
    ),
    "journal": Verb("gavel.cli.journal:app", "Check, read, compact and salvage a journal."),
    "events": Verb("gavel.cli.events:events_command", "Print a timeline of what happened.", CLIENT),
    "login": Verb("gavel.cli.login:login_command", "Log in to a scheduler with a token.", CLIENT),
    "whoami": Verb("gavel.cli.login:whoami_command", "Show who the scheduler takes you for.", CLIENT),
    "context": Verb("gavel.cli.context:app", "Show, choose and remove your logins to schedulers.", CLIENT),
    "user": Verb("gavel.cli.user:app", "Add, list, change and disable users.", CLIENT),
    "token": Verb("gavel.cli.token:app", "Create, list and revoke tokens.", CLIENT),
    "agent": Verb("gavel.cli.agent:app", "List and revoke enrolled agents.", CLIENT),
    "limits": Verb("gavel.cli.limits:app", "Show and set how much users and teams may use.", CLIENT),
    "notifications": Verb(
        "gavel.cli.notifications:app", "Show and set where you are told what happens to your jobs.", CLIENT
    ),
    "completion": Verb(
        "gavel.cli.completion:completion_command", "Print a script that completes commands in your shell.", CLIENT
    ),
    "audit": Verb("gavel.cli.audit:audit_command", "Print who did what, and what was refused.", CLIENT),
    "demo": Verb("gavel.cli.demo:demo", "Run the live system here, with emulated accelerators."),
    "bench": Verb("gavel.cli.bench:app", "Measure how fast Gavel is on this machine."),
    "trace": Verb("gavel.cli.trace:app", "Generate, convert and describe traces of jobs."),
}


def command_line(arguments: Sequence[str]) -> typer.Typer:
    """All installed verbs. Only the requested one is loaded, because the solvers take a second to import."""
    absent = [name for name, verb in VERBS.items() if not verb.installed]
    app = typer.Typer(
        name="gavel",
        help="Share a cluster of mixed accelerators among training jobs.",
        epilog=f"With {SCHEDULER} also: {', '.join(absent)}." if absent else None,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its table of options cuts off long names and calls every switch a bool
    )
    app.callback()(_root)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, verb in VERBS.items():
        if name == wanted:
            _add(app, name, verb)
        elif name not in absent:
            app.command(name, help=verb.summary)(_not_loaded)
    return app


def _add(app: typer.Typer, name: str, verb: Verb) -> None:
    try:
        found = verb.load()
    except ModuleNotFoundError as error:
        raise InputError(
            f"`gavel {name}` needs {error.name}, which is not installed; `pip install {verb.package}` brings it"
        ) from None
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name, cls=getattr(sys.modules[verb.module], "COMMAND_CLASS", None))(found)


def _not_loaded() -> None:
    """Placeholder for a verb that was not requested."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"gavel {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: exit code 0 for success, 2 for bad input, 1 for a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one return for each outcome
    """Run one command and return its exit code; errors are one sentence on stderr."""
    # The network library reads this when it is loaded: we report errors ourselves, in one sentence.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        result = command_line(arguments)(arguments, standalone_mode=False)
    except InputError as error:
        return _complain(str(error), 2)
    except GavelError as error:
        return _complain(str(error), 1)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the library does not export the class
            return run([*arguments, "--help"])
        sentence = " ".join(error.format_message().split())
        sentence = sentence.replace(": Input should be ", ": it must be ").replace(": Value error, ", ": ")
        return _complain(sentence, error.exit_code) if sentence else error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except SystemExit as end:  # raised when the reader, say `head`, closes the pipe: not an error
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return 0
    except Exception as error:  # the outermost edge: a bug is reported in one sentence, too
        if os.environ.get("GAVEL_TRACEBACK"):
            raise
        return _complain(
            f"this is a bug in Gavel: {error!r}; set GAVEL_TRACEBACK=1 to see where, and please report it", 1
        )
    return result if isinstance(result, int) else 0


def _complain(sentence: str, code: int) -> int:
    from gavel.cli.words import printable  # noqa: PLC0415 - only an error needs it

    shorter = re.sub(r"\d{100,}", lambda digits: f"{digits[0][:20]}... ({len(digits[0])} digits)", sentence)
    discreet = re.sub(r"\b(gv[ljs]_)[\w-]{8,}", r"\1(hidden)", shorter)  # a token, typed in a wrong place
    print(f"gavel: {printable(discreet)}", file=sys.stderr)
    return code
