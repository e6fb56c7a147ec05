"""What a word of a command line can be: verbs and options from the commands themselves, values from the scheduler.

Nothing here fails: a shell that asks gets an answer or nothing. Names that a shell would not take literally, which a
user could be tricked into running, are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer.main

from gavel.cli.app import VERBS, command_line
from gavel.client.request_rules import LAUNCHERS
from gavel.client.selection import STATES
from gavel.errors import GavelError

if TYPE_CHECKING:
    from gavel.client.api import Client
    from gavel.client.views import JobView

ANSWER_SECONDS = 1.0
"""How long a user waits for a scheduler that does not answer."""
MOST_JOBS = 200
"""The newest jobs, of the unfinished and of the finished ones, that are offered."""
_SAFE = re.compile(r"[\w@%+:,./=-]+")
"""What every shell takes as it is written."""
Answer = tuple[str, str]
"""A word, and what is said about it."""


def answers(words: Sequence[str], at: int) -> list[Answer]:
    """What the word at a position may be, given the words before it and its beginning."""
    try:
        before, current = _joined(words[1:at]), words[at] if at < len(words) else ""
        if current == "=" and before:
            before, current = [*before, "="], ""
        found = list(_possible(before, current))
    except (GavelError, OSError, typer.TyperException):
        return []
    return [(word, told) for word, told in found if word.startswith(current) and _SAFE.fullmatch(word)]


def _joined(words: Sequence[str]) -> list[str]:
    """The words without the equals signs that bash makes words of their own."""
    return [word for number, word in enumerate(words) if word != "=" or number == len(words) - 1]


def _possible(before: Sequence[str], current: str) -> Iterator[Answer]:
    if "--" in before:
        return
    path = [word for word in before if not word.startswith("-")]
    verb = next((word for word in path if word in VERBS), None)
    if verb is None:
        yield from ((name, each.summary) for name, each in VERBS.items() if each.installed)
        return
    command, names = _command(verb, path)
    option = before[-2] if before[-1:] == ["="] and len(before) > 1 else before[-1] if before else ""
    taken = _option(command, option)
    attached, sign, _ = current.partition("=")
    if sign and (inside := _option(command, attached)) is not None:
        yield from ((f"{attached}={word}", told) for word, told in _values(inside, names, current[len(attached) + 1 :]))
    elif taken is not None:
        yield from _values(taken, names, current)
    elif current.startswith("-"):
        yield from _options(command)
    elif hasattr(command, "commands"):
        yield from ((name, _first_line(below)) for name, below in command.commands.items())
    else:
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        for argument in arguments[-1:]:
            yield from _values(argument, names, current)


def _command(verb: str, path: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """The command that the words name, and its names."""
    group: Any = typer.main.get_command(command_line([verb]))
    command, names = group.commands[verb], [verb]
    for word in path[path.index(verb) + 1 :]:
        below = getattr(command, "commands", {}).get(word)
        if below is None:
            break
        command, names = below, [*names, word]
    return command, tuple(names)


def _option(command: Any, word: str) -> Any:
    """The option of that name, if a value follows it."""
    for each in command.params:
        if each.param_type_name == "option" and word in each.opts and not each.is_flag:
            return each
    return None


def _options(command: Any) -> Iterator[Answer]:
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden:
            yield from ((name, (each.help or "").split(". ")[0]) for name in each.opts if name.startswith("--"))
    yield "--help", "Show this message and exit."


def _first_line(command: Any) -> str:
    return (command.help or "").partition("\n")[0]


# ---- values ----


def _values(parameter: Any, names: tuple[str, ...], current: str) -> Iterable[Answer]:
    """What a parameter can be; nothing for what only the user knows."""
    opts = set(parameter.opts)
    for known, answer in _BY_OPTION.items():
        if known in opts and (known not in _SELECTORS or _selects(names)):
            return answer(names, current)
    if parameter.metavar in ("JOBS", "ID") and names[0] in _OF_JOBS:
        return _ids(names, current)
    return [(name, "") for name in ("bash", "zsh", "fish")] if parameter.metavar == "SHELL" else ()


def _selects(names: tuple[str, ...]) -> bool:
    """Whether a verb selects jobs by --name and --tag, and does not set them."""
    return names[0] not in ("submit", "run", "edit", "resubmit")


def _ask(question: Callable[[Client], Iterable[Answer]]) -> list[Answer]:
    """What the scheduler answers at once."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from gavel.client.api import Client  # noqa: PLC0415 - loads the network library

    with Client(os.environ.get("GAVEL_SCHEDULER") or None, timeout=ANSWER_SECONDS, patience=0.0) as client:
        return list(question(client))


def _jobs(client: Client, *, finished: bool) -> list[JobView]:
    """The newest jobs."""
    unfinished = client.jobs(finished=False, limit=MOST_JOBS)
    return [*unfinished, *(client.jobs(finished=True, limit=MOST_JOBS) if finished else [])]


_OPEN = ("cancel", "hold", "release", "requeue", "edit", "wait")
"""Verbs for jobs that have not finished."""
_ARRAYS = (*_OPEN, "jobs", "job", "resubmit")
_OF_JOBS = (*_ARRAYS, "logs", "checkpoints")


def _ids(names: tuple[str, ...], _current: str) -> list[Answer]:
    def of(client: Client) -> Iterator[Answer]:
        jobs = _jobs(client, finished=names[0] not in _OPEN)
        if names[0] in (*_ARRAYS, "submit"):
            yield from ((array, "array") for array in dict.fromkeys(job.request.array_id for job in jobs) if array)
        yield from ((job.id, f"{' '.join(job.request.name.split())} {job.state}".strip()) for job in jobs)

    return _ask(of)


def _in_list(known: Iterable[str], current: str) -> list[Answer]:
    """The last part of a comma-separated list, after those before it."""
    before, comma, _ = current.rpartition(",")
    given = before.split(",")
    return [(f"{before}{comma}{name}", "") for name in known if name not in given]


def _types(_names: tuple[str, ...], current: str) -> list[Answer]:
    found = _ask(lambda client: ((server.type, "") for server in client.cluster().servers))
    return _in_list(sorted({name for name, _ in found}), current)


def _of_jobs(texts: Callable[[JobView], Iterable[str]]) -> Callable[[tuple[str, ...], str], list[Answer]]:
    """The different texts of jobs."""

    def answer(_names: tuple[str, ...], _current: str) -> list[Answer]:
        found = _ask(lambda client: ((text, "") for job in _jobs(client, finished=True) for text in texts(job)))
        return sorted(set(found))

    return answer


def _contexts(_names: tuple[str, ...], _current: str) -> list[Answer]:
    from gavel.client.contexts import ContextFile  # noqa: PLC0415 - rarely needed

    return [(name, "") for name in ContextFile.own().read().known]


_names_of_jobs = _of_jobs(lambda job: [job.request.name])
_tags_of_jobs = _of_jobs(lambda job: [f"{name}={value}" for name, value in job.request.tags.items()])
_users = _of_jobs(lambda job: [job.request.user])
_SELECTORS = ("--name", "--tag")
_BY_OPTION: Mapping[str, Callable[[tuple[str, ...], str], Iterable[Answer]]] = {
    "--types": _types,
    "--prefer": _types,
    "--state": lambda _names, current: _in_list(STATES, current),
    "--user": _users,
    "--as": _users,
    "--name": _names_of_jobs,
    "--named": _names_of_jobs,
    "--tag": _tags_of_jobs,
    "--tagged": _tags_of_jobs,
    "--after": _ids,
    "--job": _ids,
    "--launcher": lambda _names, _current: [(name, "") for name in LAUNCHERS],
    "--scheduler": _contexts,
}
