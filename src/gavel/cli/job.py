"""`gavel job ID`: everything that the scheduler knows about one job."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gavel.cli.formats import Format, check_format, print_formatted
from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, number, pairs, print_json, share, styled, table
from gavel.cli.selecting import Id, one_id
from gavel.cli.words import STYLES, clock, done, label, lasted, said_command, span, steps, summary, tags, where
from gavel.client.dependencies import is_array_id
from gavel.client.quantities import duration, size
from gavel.client.requests import JobRequest
from gavel.client.secret_values import HIDDEN
from gavel.client.selection import Selection
from gavel.client.views import JobDetail, JobState, JobView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

TAIL_LINES = 10
"""Lines shown from the log of a failed job."""


def job_command(
    id: Id,  # noqa: A002 - the term used everywhere
    form: Format = None,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Show everything about one job.

    Its request, state and history, the time it received on each type, its shares in the allocation, its estimated speed
    on each type, what limits it, and if it failed the end of its log. Of an array (a38), its jobs are listed.
    """
    if form is not None:
        check_format(form, as_json=as_json)
    with connect(scheduler) as client:
        if is_array_id(id) or form is not None:
            found = client.select(Selection.of([id]))
            if form is not None:
                print_formatted(form, found)
            else:
                _show_array(found, id, as_json=as_json)
            return
        detail = client.job(one_id(client, id))
        failed = detail.job.state is JobState.FAILED
        tail = b"".join(client.logs(detail.job.id, tail=TAIL_LINES)).decode(errors="replace") if failed else ""
    if as_json:
        print_json({**detail.document(), "log_tail": tail})
        return
    out = console()
    _print_head(out, detail.job, time.time())
    _print_facts(out, detail)
    _print_types(out, detail)
    _print_history(out, detail)
    if tail:
        out.print("\nthe end of its log:", style="dim")
        out.print(styled(tail.rstrip("\n")), soft_wrap=True)


def _show_array(jobs: Sequence[JobView], array: str, *, as_json: bool) -> None:
    from gavel.cli.folding import Fold  # noqa: PLC0415 - rarely needed
    from gavel.cli.job_table import CUT, job_table  # noqa: PLC0415 - rarely needed

    if as_json:
        print_json({"array": array, "jobs": [job.document() for job in jobs]})
        return
    out, now = console(), time.time()
    fold, request = Fold(array, tuple(jobs)), jobs[0].request
    head = styled(f"array {array}", "bold").append(styled(f"  {fold.name()}  ", "not bold"))
    out.print(head.append(f"{len(jobs):,} jobs, {fold.done()} done"), soft_wrap=True)
    out.print(styled(summary(jobs)))
    if reason := fold.reason():
        out.print(styled(reason), soft_wrap=True)
    out.print()
    rows = [
        ("command", fold.common(lambda job: said_command(job.request)) or f"{said_command(request)} (the first)"),
        ("parameters", ", ".join(request.parameters)),
        ("at once", f"at most {request.at_once:,}" if request.at_once else ""),
        ("submitted", clock(fold.submitted)),
        ("ended", clock(fold.ended) if fold.ended else ""),
    ]
    out.print(pairs((name, value) for name, value in rows if value))
    out.print()
    table = job_table(jobs, now, out.width)
    out.print(table.drawn)
    if table.cut:
        out.print(CUT, style="dim", soft_wrap=True)


def _print_head(out: Console, job: JobView, now: float) -> None:
    head = styled(f"job {job.id}", "bold").append(styled(f"  {label(job)}  ", "not bold"))
    head = head.append(str(job.state), STYLES.get(job.state, ""))
    tense = "took" if job.finished else "for"
    out.print(head.append(f" {tense} {span(lasted(job, now))}"), soft_wrap=True)
    if job.reason:
        out.print(styled(job.reason), soft_wrap=True)
    if job.warning:
        out.print(styled(job.warning, "yellow"), soft_wrap=True)
    out.print()


def _print_facts(out: Console, detail: JobDetail) -> None:
    out.print(pairs((name, value) for name, value in _facts(detail) if value))


def _facts(detail: JobDetail) -> Iterator[tuple[str, str]]:
    job, request = detail.job, detail.job.request
    yield "command", said_command(request)
    yield "directory", request.working_directory
    yield "template", request.template
    yield from _membership(request)
    yield "workers", str(request.workers)
    yield "launcher", "" if request.launcher == "per-device" else request.launcher
    yield "weight", "" if request.weight == 1 else number(request.weight)
    yield "user", request.user
    yield "entity", request.entity
    yield "tags", tags(request)
    yield "types", ", ".join(request.types)
    yield "prefers", ", ".join(request.prefer)
    yield "needs", ", ".join(_needs(request))
    yield "after", ", ".join(request.after)
    yield from _limits(job)
    yield "venv", request.venv
    yield "modules", " ".join(request.modules)
    yield "container", request.container
    yield "terminal", "yes" if request.terminal else ""
    yield "environment", " ".join(request.environment)  # values may be secrets
    yield "secrets", " ".join(f"{name} {HIDDEN}" for name in request.secrets)
    yield "private", "yes" if request.private else ""
    yield "notifies", " ".join(request.notify)
    yield "submitted", clock(job.submitted)
    if request.deadline_hours:
        yield "deadline", clock(job.submitted + 3600 * request.deadline_hours)
    yield "ended", clock(job.ended) if job.ended else ""
    yield "steps", f"{steps(job)}  {done(job)}".strip()
    yield "exit code", _exit_code(job.exit_code)
    yield "runs on", where(job)
    yield "beside", f"job {job.beside}" if job.beside else ""
    yield "starts", f"{job.attempts}, restarts {job.restarts}, failures {job.failures} of {request.retries} allowed"
    yield "limit", detail.limit


def _membership(request: JobRequest) -> Iterator[tuple[str, str]]:
    """The array or grid that it belongs to."""
    if request.array_id:
        most = f", at most {request.at_once:,} at once" if request.at_once else ""
        yield "array", f"{request.array_id}, index {request.index}{most}"
    yield "parameters", ", ".join(f"{name}={value}" for name, value in request.parameters.items())


def _needs(request: JobRequest) -> Iterator[str]:
    """What each worker needs beside an accelerator."""
    if request.gpu_memory is not None:
        yield f"{size(int(request.gpu_memory))} of accelerator memory"
    if request.cpus is not None:
        yield f"{request.cpus:g} CPU {'core' if request.cpus == 1 else 'cores'}"
    if request.memory is not None:
        yield f"{size(int(request.memory))} of RAM"
    if request.workers > 1 and (request.gpu_memory, request.cpus, request.memory) != (None, None, None):
        yield "for each worker"


def _limits(job: JobView) -> Iterator[tuple[str, str]]:
    request = job.request
    if request.time_limit is not None:
        used = sum(job.received.values())
        yield "time limit", f"{duration(float(request.time_limit))}, {span(used)} used"
    if request.idle_timeout is not None:
        yield "idle timeout", duration(float(request.idle_timeout))
    if request.grace is not None:
        yield "grace", f"{duration(float(request.grace))} to save and leave"


def _exit_code(code: int | None) -> str:
    """The exit code of the last attempt, or the signal that ended it.

    >>> _exit_code(3), _exit_code(-15), _exit_code(None)
    ('3', '-15 (SIGTERM)', '')
    """
    if code is None:
        return ""
    known = -code in {int(number) for number in signal.Signals}
    return f"{code} ({signal.Signals(-code).name})" if known else str(code)


def _print_types(out: Console, detail: JobDetail) -> None:
    """The job's share of each type, and its speed there."""
    received = detail.job.received
    names = sorted({*detail.shares, *detail.rates, *received})
    if not names:
        return
    rows = [
        [
            name,
            share(detail.shares.get(name, 0.0)),
            number(detail.rates[name]) if name in detail.rates else "",
            span(received[name]) if name in received else "",
        ]
        for name in names
    ]
    out.print()
    out.print(table(["type", "share of time", "steps/s", "received"], rows))


def _print_history(out: Console, detail: JobDetail) -> None:
    if not detail.history:
        return
    rows: list[list[str | Text]] = [
        [clock(each.time), styled(str(each.state), STYLES.get(each.state, "")), each.reason] for each in detail.history
    ]
    out.print()
    out.print(table(["since", "state", "reason"], rows, left=3))
