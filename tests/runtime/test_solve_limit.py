"""A live solve has a time limit; after it the old allocation stays in force, and the next question has an answer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.events import AllocationReady, Event, Solve, SolveFailed
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies.registry import allocate
from gavel.runtime import driver
from gavel.runtime.driver import Driver
from gavel.runtime.engine import Engine
from gavel.runtime.executor import Executor

PROBLEM = Problem.of([AcceleratorType("v100", 1)], [Job("a", {"v100": 1.0})])


class Heard:
    """An engine that only listens."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    def clock(self) -> float:
        return 0.0

    def post(self, event: Event, *_: Any) -> None:
        self.events.put_nowait(event)


def test_a_policy_that_never_answers_is_given_up_and_the_next_question_is_answered(monkeypatch: Any) -> None:
    monkeypatch.setattr(driver, "GIVING_UP_SECONDS", 0.0)
    released = threading.Event()

    def solver(problem: Problem) -> Allocation:
        if threading.current_thread().name.endswith("_0") and not stuck:
            stuck.append(True)
            released.wait(30)
        return allocate(problem)

    stuck: list[bool] = []

    async def ask_twice() -> list[Event]:
        engine, heard = Heard(), []
        asking = Driver(cast("Engine", engine), cast("Executor", None), solver, solve_limit_seconds=0.2)
        for number in (1, 2):
            asking.ask(Solve(number, PROBLEM))
            heard.append(await engine.events.get())
        released.set()
        return heard

    failed, answered = asyncio.run(asyncio.wait_for(ask_twice(), 20))
    assert isinstance(failed, SolveFailed)
    assert "time limit of 0.2 s" in failed.reason
    assert isinstance(answered, AllocationReady)
    assert answered.number == 2
