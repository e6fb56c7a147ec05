"""The fleet starts nothing of a job before the journal has the ends of all attempts before."""

from __future__ import annotations

from virtual_fleet import SETTINGS, job_request

from gavel.client.views import JobState, Transition
from gavel.core.events import Launch
from gavel.core.jobs import Cause
from gavel.runtime.events import AttemptEnded, Event
from gavel.runtime.executor import Done
from gavel.runtime.fleet import Fleet, SchedulerIdentity
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.messages import Ending, Hello, StartAttempt, TaskEnded, TaskStatus, ToAgent
from gavel.wire import PROTOCOL


class Wire:
    """Where an agent would listen."""

    def __init__(self) -> None:
        self.heard: list[ToAgent] = []

    def send(self, message: ToAgent) -> None:
        self.heard.append(message)

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def started(self) -> list[int]:
        return [message.attempt for message in self.heard if isinstance(message, StartAttempt)]


def test_an_attempt_waits_until_the_withdrawal_of_the_one_before_is_written() -> None:
    ends: dict[int, Done | None] = {}

    def post(event: Event, done: Done | None = None) -> None:
        if isinstance(event, AttemptEnded):
            ends[event.attempt] = done

    record = LiveJobRecord(
        id="1", request=job_request(100.0), submitted=0.0, history=(Transition(0.0, JobState.RUNNING, ""),)
    )
    fleet, wire = Fleet(SETTINGS, SchedulerIdentity("cluster", 1), lambda: 100.0, post, {"1": record}), Wire()
    fleet.attach(Hello(protocol=PROTOCOL, name="a", agent="id", incarnation="1", accelerators={"v100": 1}), wire)
    for attempt in (1, 2):
        fleet.launch(Launch("1", "v100", {"a": 1}, 110.0, attempt=attempt), {"a": "id"})
        fleet.stop("1", Cause("yielded", "yields"))
    fleet.launch(Launch("1", "v100", {"a": 1}, 110.0, attempt=3), {"a": "id"})
    left = TaskEnded(status=TaskStatus(job="1", attempt=1, rank=0), ending=Ending.LEFT)
    acknowledged: list[int] = []
    fleet.ended("id", left, lambda: acknowledged.append(1))
    assert sorted(ends) == [1, 2]
    assert wire.started() == [1]
    assert not acknowledged
    written = ends[1]
    assert written is not None
    written(None)
    assert acknowledged == [1]
    assert wire.started() == [1], "attempt 3 began while the journal has attempt 2 open"
    written = ends[2]
    assert written is not None
    written(None)
    assert wire.started() == [1, 3]
