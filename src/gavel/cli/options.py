"""Options that several commands share, each with one meaning and one help text."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

PolicyName = Annotated[str, typer.Option("--policy", "-p", help="Which policy; `gavel policies` lists them.")]
SpaceSharing = Annotated[bool, typer.Option("--space-sharing", help="Let pairs of jobs share accelerators.")]
Agnostic = Annotated[bool, typer.Option("--agnostic", help="Decide as if all types were equally fast.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ClusterText = Annotated[str, typer.Option(help="Accelerators, for example v100=36,p100=36,k80=36.")]
MultiWorker = Annotated[bool, typer.Option("--multi-worker", help="Some generated jobs want 2 to 8 workers.")]
RoundSeconds = Annotated[float, typer.Option(help="Length of a round.", min=1.0)]
Throughputs = Annotated[str, typer.Option(help="A throughput table, or 'builtin'.", metavar="FILE")]
MechanismOption = Annotated[
    Literal["credits", "plain"], typer.Option(help="credits avoids restarts; plain is the paper's priority mechanism.")
]
Window = Annotated[
    str | None, typer.Option(help="Count jobs A (included) to B (excluded) by arrival, and stop then.", metavar="A:B")
]
RestartSeconds = Annotated[float, typer.Option(help="Cost of moving or resuming a job.", min=0.0)]
MinSecondsBetweenAllocations = Annotated[
    float, typer.Option(help="Recompute at most this often; default: whenever jobs or servers come or go.", min=0.0)
]
RecomputeEverySeconds = Annotated[
    float | None, typer.Option(help="Recompute this often even if nothing changed.", min=1.0)
]
PerServer = Annotated[int, typer.Option(help="Accelerators in each server.", min=1)]
LimitDays = Annotated[float, typer.Option(help="Give up when this many days have been simulated.", min=0.01)]
