"""The `gavel` command: its verbs, and how errors leave it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer

from gavel.errors import GavelError, InputError
from gavel.version import __version__


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: where it is, and what `gavel --help` says of it without loading it."""

    module: str
    attribute: str
    """A function, or a Typer with commands of its own."""
    summary: str


VERBS = {
    "policies": Verb("policies", "policies", "List every policy with what it does."),
    "allocate": Verb("allocate", "allocate_command", "Solve one problem: allocation and certificate."),
    "verify": Verb("verify", "verify_command", "Check an answer of allocate without a solver."),
    "simulate": Verb("simulate", "simulate_command", "Run a workload in virtual time and print its figures."),
    "sweep": Verb("sweep", "sweep_command", "Compare policies over loads and seeds, on all cores."),
    "estimate": Verb("estimate", "estimate_command", "Estimate how a template runs beside others."),
    "profile": Verb("profile", "profile_command", "Measure a command on every type, alone and beside others."),
    "reproduce": Verb("reproduce", "reproduce_command", "Rerun the paper's evaluation, beside what it claims."),
    "serve": Verb("serve", "serve_command", "Run the scheduler: takes jobs, gives them to agents."),
    "worker": Verb("worker", "app", "Run jobs on this server for a scheduler."),
    "submit": Verb("submit", "submit_command", "Submit jobs, from files or as a command after --."),
    "jobs": Verb("jobs", "jobs_command", "List jobs that are not over or ended in the last hour."),
    "job": Verb("job", "job_command", "Show everything about one job."),
    "logs": Verb("jobs", "logs_command", "Print what a job has printed."),
    "cancel": Verb("jobs", "cancel_command", "Cancel jobs; those that are over stay as they are."),
    "checkpoints": Verb("checkpoints", "app", "Remove checkpoints of finished jobs."),
    "cluster": Verb("cluster", "cluster_command", "Show servers, types, policy and round."),
    "journal": Verb("journal", "app", "Check, read, compact and salvage a journal."),
    "events": Verb("events", "events_command", "Print what happened, as a timeline."),
    "demo": Verb("demo", "demo", "Run the whole live system here, on emulated accelerators."),
    "bench": Verb("bench", "app", "Measure how fast Gavel is on this machine."),
    "trace": Verb("trace", "app", "Generate, convert and describe traces of jobs."),
}


def command_line(arguments: Sequence[str]) -> typer.Typer:
    """All verbs, of which only the one that is asked for is loaded: the solvers take a second to import."""
    app = typer.Typer(
        name="gavel",
        help="Share a cluster of mixed accelerators among training jobs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its table of options cuts long names off and says of every switch that it is a bool
    )
    app.callback()(_root)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, verb in VERBS.items():
        if name == wanted:
            _load(app, name, verb)
        else:
            app.command(name, help=verb.summary)(_not_loaded)
    return app


def _load(app: typer.Typer, name: str, verb: Verb) -> None:
    module = import_module(f"gavel.cli.{verb.module}")
    found = getattr(module, verb.attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name, cls=getattr(module, "COMMAND_CLASS", None))(found)


def _not_loaded() -> None:
    """Stand for a verb that was not asked for."""


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
    """Run the command line: exit code 0 for an answer, 2 for bad input, 1 for a failure of ours."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one way out for each kind of end
    """Run one command and return its exit code; errors are one sentence on stderr."""
    # Read by the network library when it is loaded: what goes wrong is ours to say, in one sentence.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        result = command_line(arguments)(arguments, standalone_mode=False)
    except InputError as error:
        return _complain(str(error), 2)
    except GavelError as error:
        return _complain(str(error), 1)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the library keeps the class to itself
            return run([*arguments, "--help"])
        sentence = " ".join(error.format_message().split())
        return _complain(sentence, error.exit_code) if sentence else error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except SystemExit as end:  # the libraries' answer to a reader, say `head`, that has seen enough: no error of ours
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return 0
    except Exception as error:  # the outermost edge: a bug is one sentence, too
        if os.environ.get("GAVEL_TRACEBACK"):
            raise
        return _complain(f"a bug of ours: {error!r}; set GAVEL_TRACEBACK=1 to see where, and please report it", 1)
    return result if isinstance(result, int) else 0


def _complain(sentence: str, code: int) -> int:
    shorter = re.sub(r"\d{100,}", lambda digits: f"{digits[0][:20]}... ({len(digits[0])} digits)", sentence)
    print(f"gavel: {shorter}", file=sys.stderr)
    return code
