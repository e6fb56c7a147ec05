"""Control characters in anything that a scheduler says never reach the terminal."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from fake_scheduler import START, FakeScheduler
from gavel.cli import service_log
from gavel.cli.app import run
from gavel.cli.serve import say
from gavel.cli.worker import _say
from gavel.wire import gavel_pb2 as pb

EVIL = "\x1b[2J\x07\r\x9b\u202e"
FORBIDDEN = {character for character in EVIL if not character.isprintable()}


def spoil(message: Any) -> Any:
    """Add control characters to every text of a message, except to ids, which requests must find again."""
    plain = MessageToDict(message, preserving_proto_field_name=True, use_integers_for_enums=True)
    return ParseDict(spoiled(plain), type(message)())


def spoiled(plain: Any, name: str = "") -> Any:
    if isinstance(plain, dict):
        maps = name in ("environment", "received", "shares", "rates")
        return {key + EVIL if maps else key: spoiled(value, key) for key, value in plain.items()}
    if isinstance(plain, list):
        return [spoiled(part, name) for part in plain]
    return plain + EVIL if isinstance(plain, str) and name != "id" else plain


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    request = pb.JobRequest(
        name="name", template="t", command=["train", "--x"], workers=2, entity="e", types=["v100"], weight=2.0
    )
    request.environment["NAME"] = "value"
    for number, state in enumerate([pb.RUNNING, pb.QUEUED, pb.FAILED], start=1):
        view = pb.JobView(id=str(number), request=request, state=state, reason="why", submitted=START, changed=START)
        view.places.add(server="a", accelerators=2)
        view.type, view.beside = "v100", "9"
        view.received["v100"] = 5.0
        scheduler.jobs[str(number)] = spoil(view)
    scheduler.log["3", 0] = f"last words{EVIL}\n".encode()
    scheduler.detail = pb.JobDetail(limit="limit")
    scheduler.detail.history.add(time=START, state=pb.RUNNING, reason="began")
    scheduler.detail.shares["v100"] = scheduler.detail.rates["v100"] = 0.5
    scheduler.detail = spoil(scheduler.detail)
    cluster = pb.ClusterView(policy="p", version="1", trouble="t", cluster="c", ignored=["i"], alarms=["a"], time=START)
    for name in ("connected", "away", "lost", "drained"):
        cluster.servers.add(name="a", agent="a", type="v100", accelerators=2, state=name, jobs=["1"], reason="r")
    cluster.types.add(name="v100", accelerators=2)
    scheduler.view.CopyFrom(spoil(cluster))
    scheduler.happens(f"agent was lost{EVIL}", "agent_lost", '{"server": "a", "fact": {}}')
    yield scheduler
    scheduler.stop()


COMMANDS = {
    "jobs": ["jobs", "--all"],
    "running": ["job", "1"],
    "failed": ["job", "3"],
    "cluster": ["cluster"],
    "events": ["events"],
    "drain": ["worker", "drain", f"a{EVIL}"],
    "undrain": ["worker", "undrain", f"a{EVIL}"],
    "remove": ["worker", "remove", f"a{EVIL}"],
    "no such agent": ["worker", "drain", f"b{EVIL}"],
    "no such job": ["job", f"7{EVIL}"],
    "cancel": ["cancel", "1", "3"],
    "checkpoints": ["checkpoints", "remove", "3"],
    "submit": ["submit", "--types", "x", "--", "train"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_control_characters(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    fake.checkpoints["3"] = pb.CheckpointsView(state="kept", reason=f"because{EVIL}")
    run(COMMANDS[command])
    captured = capsys.readouterr()
    assert captured.out or captured.err
    assert not FORBIDDEN & set(captured.out + captured.err)


def test_lines_of_the_services_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"agent {EVIL}")
    _say(f"the scheduler said {EVIL}")
    stream = io.StringIO()
    service_log.set_up("debug", "text", stream)
    try:
        int(EVIL)
    except ValueError:
        logging.getLogger("gavel.x").exception("agent %s", EVIL)
    assert not FORBIDDEN & set(stream.getvalue() + capsys.readouterr().err)
