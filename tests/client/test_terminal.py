"""A client at the terminal of a job: what it sends and shows, and what it does while the scheduler is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gavel.client import terminal as terminals
from gavel.client.connection import Away
from gavel.client.terminal import Terminal, TerminalNews
from gavel.wire import gavel_pb2 as pb

SCENE = list[pb.TerminalOutput | Away | threading.Event]


class ScriptedConnection:
    """Answers as a test says; an Away begins the next stream, as in a real connection, and an event is waited for."""

    def __init__(self, *scenes: SCENE) -> None:
        self._scenes = scenes
        self.streams: list[Iterator[pb.TerminalInput]] = []

    def listen(self, method: str, request: Any, *, again: Any) -> Iterator[Any]:
        assert (method, again()) == ("Terminal", False)
        for scene in self._scenes:
            self.streams.append(request())
            for each in scene:
                if isinstance(each, threading.Event):
                    assert each.wait(60)
                else:
                    yield each


def shown_by(connection: ScriptedConnection, **options: Any) -> tuple[Terminal, Iterator[TerminalNews]]:
    terminal = Terminal(connection, "7", rows=24, columns=80, **options)  # type: ignore[arg-type]
    return terminal, terminal.shown()


def output(data: bytes, offset: int, *, ended: bool = False) -> pb.TerminalOutput:
    return pb.TerminalOutput(data=data, offset=offset, ended=ended)


def test_a_new_connection_continues_where_the_last_one_stopped() -> None:
    connection = ScriptedConnection(
        [output(b"abc", 0), Away("it restarts"), Away("connection refused")],
        [output(b"bcde", 1), output(b"", 5, ended=True)],
    )
    terminal, shown = shown_by(connection)
    assert list(shown) == [
        TerminalNews(b"abc"),
        TerminalNews(away="it restarts"),  # said once
        TerminalNews(back=True),
        TerminalNews(b"de"),
    ]
    assert terminal.ended
    first, second = (next(stream) for stream in connection.streams)
    assert (first.id, first.rows, first.columns, first.offset) == ("7", 24, 80, 0)
    assert second.offset == 3


def test_what_is_typed_while_the_scheduler_is_away_is_dropped() -> None:
    connection = ScriptedConnection([output(b"", 0), Away("it restarts")], [output(b"", 0), output(b"", 0, ended=True)])
    terminal, shown = shown_by(connection)
    assert terminal.type(b"before")
    assert next(shown).away
    assert not terminal.type(b"lost")
    terminal.resize(50, 132)
    assert next(shown).back
    assert terminal.type(b"after")
    terminal.close()
    list(shown)
    assert [message.data for message in connection.streams[0]] == [b"", b"before"]
    first, typed = connection.streams[1]
    assert (first.rows, first.columns) == (50, 132)  # the size is not lost
    assert typed.data == b"after"


def test_typing_never_waits_and_says_when_no_more_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "MOST_WAITING", 4)
    connection = ScriptedConnection([output(b"", 0)])
    terminal, shown = shown_by(connection)
    assert list(shown) == []
    assert terminal.type(b"x" * 4 * terminals.KEYS_BYTES)
    assert not terminal.type(b"more")
    terminal.close()  # also ends the stream that is full
    assert next(connection.streams[0]).id == "7"
    assert all(not message.id for message in connection.streams[0])


def test_one_who_returns_asks_for_the_last_part_once() -> None:
    connection = ScriptedConnection([output(b"tail", 96), Away("it restarts")], [output(b"", 100, ended=True)])
    terminal, shown = shown_by(connection, tail=4, linger_seconds=90.0)
    assert next(shown) == TerminalNews(b"tail")
    list(shown)
    first, second = (next(stream) for stream in connection.streams)
    assert (first.tail, first.linger_seconds) == (4, 90.0)
    assert (second.tail, second.offset) == (0, 100)
    assert terminal.offset == 100
