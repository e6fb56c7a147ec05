"""The `gavel` command: its verbs, and how errors leave it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gavel.cli import allocate, bench, demo, policies, simulate, sweep, trace
from gavel.core.errors import GavelError, InputError
from gavel.version import __version__

app = typer.Typer(
    name="gavel",
    help="Share a cluster of mixed accelerators among training jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("policies")(policies.policies)
app.command("allocate")(allocate.allocate_command)
app.command("simulate")(simulate.simulate_command)
app.command("sweep")(sweep.sweep_command)
app.command("demo")(demo.demo)
app.add_typer(bench.app, name="bench")
app.add_typer(trace.app, name="trace")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"gavel {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: exit code 0 for an answer, 2 for bad input, 1 for a failure of ours."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one way out for each kind of end
    """Run one command and return its exit code; errors are one sentence on stderr."""
    try:
        result = app(arguments, standalone_mode=False)
    except InputError as error:
        return _complain(str(error), 2)
    except GavelError as error:
        return _complain(str(error), 1)
    except typer.TyperException as error:
        sentence = " ".join(error.format_message().split())
        return _complain(sentence, error.exit_code) if sentence else error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except BrokenPipeError:  # the reader, say `head`, has seen enough
        sys.stderr.close()
        return 0
    except Exception as error:  # the outermost edge: a bug is one sentence, too
        if os.environ.get("GAVEL_TRACEBACK"):
            raise
        return _complain(f"a bug of ours: {error!r}; set GAVEL_TRACEBACK=1 to see where, and please report it", 1)
    return result if isinstance(result, int) else 0


def _complain(sentence: str, code: int) -> int:
    print(f"gavel: {sentence}", file=sys.stderr)
    return code
