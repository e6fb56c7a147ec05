"""Small named scenarios: what agents, clients and operators do at which time. Each is run once per crash point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from virtual_fleet import VirtualFleet

from gavel.runtime.events import HoldAsked, ReleaseAsked, RequeueAsked
from gavel.runtime.fleet import FleetSettings
from gavel.security.quotas import Kind, Subject

Action = Callable[[VirtualFleet], None]
Script = tuple[tuple[float, Action], ...]


@dataclass(frozen=True)
class Scenario:
    """A cluster, and what happens there; times count from the start."""

    script: Script
    agents: tuple[tuple[str, str, int], ...] = (("a", "v100", 1), ("b", "v100", 1))
    world: dict[str, Any] = field(default_factory=dict)
    """Of the VirtualFleet."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the scheduler."""
    outcomes: dict[str, set[str]] = field(default_factory=dict)
    """By label: how a job may end; completed if nothing is said."""
    lasts: float = 400.0
    """Everything has finished after this many seconds, whatever crashed."""

    def build(self, folder: Path, **changes: Any) -> VirtualFleet:
        """The cluster, with its scheduler about to start."""
        options = {"seed": 1, "round_seconds": 4.0, "crash_at": 0, **self.world, **changes}
        world = VirtualFleet(folder, **options)
        world.with_settings(**self.settings)
        return world

    def play(self, world: VirtualFleet) -> None:
        """Let it happen, then wait until everything has finished."""
        try:
            self._play(world)
        except BaseException:
            world.finish()
            raise

    def _play(self, world: VirtualFleet) -> None:
        start = world.now
        world.boot()
        for name, kind, count in self.agents:
            world.add_agent(name, kind, count)
        for at, action in sorted(self.script, key=lambda entry: entry[0]):
            while world.now < start + at:
                world.step()
            action(world)
        world.run_until_over(self.lasts)
        world.checker.check_outcomes()
        for label, job in world.keys.items():
            outcome = world.checker.ended[job]
            assert outcome in self.outcomes.get(label, {"completed"}), f"job {label!r} has {outcome}"


def submits(label: str, steps: float, **wanted: Any) -> Action:
    return lambda world: world.client_submits(label, steps, **wanted)


def cancels(label: str) -> Action:
    return lambda world: world.client_cancels(label)


def edits(label: str, **new: Any) -> Action:
    return lambda world: world.client_edits(label, **new)


def removes(label: str) -> Action:
    """A client asks for the removal of a job's checkpoints as soon as the job has finished."""
    return lambda world: world.client_removes_checkpoints(label)


def holds(label: str) -> Action:
    return lambda world: world.client_asks(HoldAsked, label)


def releases(label: str) -> Action:
    return lambda world: world.client_asks(ReleaseAsked, label)


def requeues(label: str) -> Action:
    return lambda world: world.client_asks(RequeueAsked, label)


def fails(label: str, *, hopeless: bool = False) -> Action:
    """The process of a job crashes, if it runs."""

    def action(world: VirtualFleet) -> None:
        any(agent.crash_task(world.keys.get(label, ""), hopeless=hopeless) for agent in world.agents.values())

    return action


def to(name: str, what: Callable[[Any], Any]) -> Action:
    """Something happens to an agent."""
    return lambda world: what(world.agents[f"id-{name}"])


def beneath(label: str, what: Callable[[Any], Any]) -> Action:
    """Something happens to an agent that runs a job, if one does."""

    def action(world: VirtualFleet) -> None:
        running = [
            agent
            for agent in world.agents.values()
            if any(job == world.keys.get(label) and task.processes for (job, _), task in agent.tasks.items())
        ]
        for agent in running[:1]:
            what(agent)

    return action


def restarts(seconds: float = 1.0, *, clock: float = 0.0, **settings: Any) -> Action:
    """The scheduler is restarted, perhaps with another wall clock and other settings."""

    def action(world: VirtualFleet) -> None:
        world.wall_offset += clock
        world.with_settings(**settings)
        world.kill_scheduler(seconds)

    return action


def replaced_by(name: str, kind: str, count: int) -> Action:
    """Another machine has the same name."""
    return lambda world: void(world.add_agent(name, kind, count, identity=f"other-{name}"))


def failing(*fails: str) -> Action:
    return lambda world: world.journal_fails.extend(fails)


def void(_: object) -> None:
    pass


def limits(accelerators: int) -> Action:
    """An operator lets ann run this many accelerators at a time; 0: any number."""
    return lambda world: world.operator_limits(Subject(Kind.USER, "ann"), accelerators)


EITHER = {"completed", "cancelled"}
ANN = {"user": "ann", "entity": "lab"}
TWO: Script = ((0.0, submits("x", 30.0)), (0.0, submits("y", 50.0)))
LONG: Script = ((0.0, submits("x", 160.0)),)
LONG_LEASES = {"round_seconds": 10.0, "slow_to_leave": True}
PATIENT = FleetSettings(
    heartbeat_seconds=0.5,
    agent_timeout_seconds=3.0,
    lease_slack_seconds=2.0,
    checkpoint_grace_seconds=8.0,
    terminate_grace_seconds=0.5,
    retry_seconds=0.5,
)

SCENARIOS: dict[str, Scenario] = {
    "limited user": Scenario(
        (
            (0.0, limits(1)),
            (0.5, submits("x", 20.0, **ANN)),
            (0.5, submits("y", 20.0, **ANN)),
            (0.5, submits("z", 20.0, **ANN)),
            (0.5, submits("other", 30.0, user="bob")),
            (3.0, cancels("y")),
        ),
        world={"facts_between_states": 5},
        outcomes={"y": EITHER},
    ),
    "limit lowered and raised": Scenario(
        (
            *((0.0, submits(label, 80.0, **ANN)) for label in "xyz"),
            (1.5, limits(1)),
            (4.0, submits("late", 10.0, **ANN)),
            (13.0, limits(2)),
        ),
        world={"facts_between_states": 5},
    ),
    "hold, release and requeue": Scenario(
        (
            (0.0, submits("x", 20.0)),
            (0.0, submits("z", 3.0, hold=True)),
            (0.0, submits("sweep", 2.0, array="0-1%1", after=("1:any",))),
            (1.0, requeues("x")),
            (2.0, holds("x")),
            (3.0, releases("x")),
            (3.0, releases("z")),
        ),
    ),
    "submit": Scenario(TWO),
    "more jobs than accelerators": Scenario(
        (*TWO, (0.5, submits("z", 40.0))), agents=(("a", "v100", 1), ("b", "k80", 1))
    ),
    "cancel a queued job": Scenario((*TWO, (0.0, submits("z", 10.0)), (2.0, cancels("z"))), outcomes={"z": EITHER}),
    "cancel a running job": Scenario((*TWO, (3.0, cancels("y"))), outcomes={"y": EITHER}),
    "cancel that crosses a crash": Scenario(
        (*TWO, (3.0, fails("y")), (3.0, cancels("y"))), outcomes={"y": {"cancelled"}}
    ),
    "cancel that crosses the last step": Scenario(
        (*TWO, (4.0, cancels("x")), (4.0, cancels("y"))), outcomes={"x": EITHER, "y": EITHER}
    ),
    "edits of a running and of a waiting job": Scenario(
        (
            (0.0, submits("x", 20.0)),
            (0.0, submits("y", 20.0, types=("v100",))),
            (1.0, edits("y", types=(), steps=10.0, weight=3.0)),
            (2.0, edits("x", types=("p100",), steps=25.0)),
        ),
        agents=(("a", "v100", 1), ("b", "p100", 1)),
    ),
    "preferred types": Scenario(
        (
            (0.0, submits("x", 30.0, types=("v100",))),
            (0.25, submits("y", 10.0, prefer=("v100",))),
            (0.5, submits("z", 5.0, prefer=("h100",), types=("h100", "p100"))),
        ),
        agents=(("a", "v100", 1), ("b", "p100", 1)),
        settings={"policy": "fifo"},
    ),
    "time limit": Scenario(
        (
            (0.0, submits("x", 1e6, time_limit_seconds=3.0)),
            (1.0, submits("y", 15.0, time_limit_seconds=1e6)),
        ),
        agents=(("a", "v100", 1),),
        world={"slow_to_leave": True},
        outcomes={"x": {"failed"}},
    ),
    "time limit across a restart and an edit": Scenario(
        (
            (0.0, submits("x", 1e6, time_limit_seconds=5.0)),
            (0.0, submits("y", 1e6, time_limit_seconds=4.0)),
            (2.0, restarts(2.0, clock=3600.0)),
            (3.0, edits("y", time_limit_seconds=12.0)),
        ),
        outcomes={"x": {"failed"}, "y": {"failed"}},
        world=LONG_LEASES,
    ),
    "crash with a retry": Scenario((*TWO, (3.0, fails("y")))),
    "crash without a retry": Scenario(
        ((0.0, submits("x", 60.0)), (0.0, submits("y", 50.0, retries=0)), (3.0, fails("y"))),
        outcomes={"y": {"failed", "completed"}},
    ),
    "hopeless crash": Scenario((*TWO, (3.0, fails("y", hopeless=True))), outcomes={"y": {"failed", "completed"}}),
    "drain": Scenario((*TWO, (2.0, lambda world: world.operator_drains("b")))),
    "drain now": Scenario((*TWO, (2.0, lambda world: world.operator_drains("b", now=True)))),
    "job that finishes while it is asked to leave": Scenario(
        (*TWO, (4.25, lambda world: world.operator_drains("a", now=True))), world={"slow_to_leave": True}
    ),
    "drain and undrain": Scenario(
        (*TWO, (2.0, lambda world: world.operator_drains("b")), (3.0, lambda world: world.operator_undrains("b")))
    ),
    "drain, restart and undrain": Scenario(
        (
            *TWO,
            (2.0, lambda world: world.operator_drains("b", now=True)),
            (3.0, restarts()),
            (6.0, lambda world: world.operator_undrains("b")),
        )
    ),
    "agent that leaves by itself and comes back": Scenario(
        (*TWO, (2.0, to("b", lambda agent: agent.drain())), (5.0, to("b", lambda agent: agent.die())))
    ),
    "clock an hour forward": Scenario(
        (*LONG, (3.0, restarts(clock=3600.0, round_seconds=1.0)), (3.0, beneath("x", lambda agent: agent.hang(16.0)))),
        world=LONG_LEASES,
    ),
    "clock an hour back": Scenario(
        (*LONG, (3.0, restarts(clock=-3600.0)), (3.0, beneath("x", lambda agent: agent.hang(16.0)))), world=LONG_LEASES
    ),
    "clock set while the scheduler runs": Scenario(
        (
            *LONG,
            (3.0, beneath("x", lambda agent: agent.hang(16.0))),
            (4.0, lambda world: setattr(world, "wall_offset", 3600.0)),
            (9.0, lambda world: setattr(world, "wall_offset", -3600.0)),
        ),
        world=LONG_LEASES,
    ),
    "agent restarted": Scenario((*TWO, (2.0, to("b", lambda agent: agent.die(1.0))))),
    "agent away for a moment": Scenario((*TWO, (2.0, to("b", lambda agent: agent.lose_connection(1.0))))),
    "agent switched off": Scenario((*TWO, (2.0, to("b", lambda agent: agent.vanish())))),
    "another machine with the name of a hung one": Scenario(
        (*LONG, (2.0, beneath("x", lambda agent: agent.hang(14.0))), (2.5, replaced_by("a", "v100", 1))),
        agents=(("a", "v100", 1),),
        world=LONG_LEASES,
    ),
    "name that passes to another machine while a launch is written": Scenario(
        (
            (2.0, submits("x", 160.0)),
            (2.5, failing(*["before"] * 12, "", *["before"] * 4)),
            (2.5, to("a", lambda agent: agent.hang(20.0))),
            (2.5, replaced_by("a", "v100", 1)),
            (6.0, lambda world: void(world.add_agent("b", "v100", 1))),
            (8.0, lambda world: world.agents["other-a"].lose_connection(6.0)),
            (8.0, restarts()),
        ),
        agents=(("a", "v100", 1),),
        world=LONG_LEASES,
        settings={"fleet": PATIENT},
    ),
    "hung agent that comes back after it was lost": Scenario(
        (*LONG, (2.0, beneath("x", lambda agent: agent.hang(5.0)))), world=LONG_LEASES
    ),
    "hung agent with a job that may take longer to save": Scenario(
        (
            (0.0, submits("x", 160.0, grace_seconds=8.0)),
            (2.0, beneath("x", lambda agent: agent.hang(40.0))),
            (9.0, restarts()),
        ),
        world=LONG_LEASES,
    ),
    "hung agent with a job that must save quickly": Scenario(
        ((0.0, submits("x", 160.0, grace_seconds=0.5)), (2.0, beneath("x", lambda agent: agent.hang(40.0)))),
        world=LONG_LEASES,
        settings={"fleet": PATIENT},
    ),
    "hung agent that comes back to a scheduler about to restart": Scenario(
        (
            *LONG,
            (2.0, beneath("x", lambda agent: agent.hang(5.0))),
            (8.0, beneath("x", lambda agent: agent.lose_connection(6.0))),
            (8.0, restarts()),
        ),
        world={"round_seconds": 10.0, "slow_to_leave": True},
        settings={"fleet": PATIENT},
    ),
    "agent that returns when its round is late": Scenario(
        (
            *LONG,
            (4.0, failing(*["before"] * 28)),
            (8.0, beneath("x", lambda agent: agent.lose_connection(0.25))),
            (8.75, beneath("x", lambda agent: agent.hang(9.0))),
        ),
        world={"slow_to_leave": True},
        settings={"fleet": replace(PATIENT, lease_slack_seconds=4.0, checkpoint_grace_seconds=1.0)},
    ),
    "gang over two agents": Scenario(((0.0, submits("x", 40.0, workers=2)), (0.0, submits("y", 20.0)))),
    "gang that loses an agent": Scenario(
        ((0.0, submits("x", 60.0, workers=2)), (3.0, to("b", lambda agent: agent.hang(6.0)))), world=LONG_LEASES
    ),
    "gang of which a lost part returns after a restart": Scenario(
        (
            (0.0, submits("x", 300.0, workers=2)),
            (3.0, to("b", lambda agent: agent.hang(5.0))),
            (5.5, to("a", lambda agent: agent.lose_connection(3.5))),
            (7.0, restarts()),
        ),
        world=LONG_LEASES,
        settings={"fleet": PATIENT},
    ),
    "gang with one process for each server": Scenario(
        (
            (0.0, submits("x", 120.0, workers=3, launcher="per-server")),
            (0.0, submits("y", 20.0)),
            (4.0, to("b", lambda agent: agent.lose_connection(1.0))),
            (9.0, fails("x")),
        ),
        agents=(("a", "v100", 2), ("b", "v100", 1)),
    ),
    "gang of which a rank crashes": Scenario(((0.0, submits("x", 60.0, workers=2)), (3.0, fails("x")))),
    "gang of which a rank leaves unasked": Scenario(
        (
            (0.0, submits("x", 60.0, workers=2)),
            (3.0, to("b", lambda agent: [agent.ask_to_leave(task, at_once=False) for task in agent.tasks.values()])),
        )
    ),
    "pair": Scenario(
        (
            (0.0, submits("x", 40.0, template="ResNet-18 (batch size 16)")),
            (0.0, submits("y", 60.0, template="ResNet-18 (batch size 16)")),
            (4.0, fails("y")),
        ),
        agents=(("a", "v100", 1),),
        settings={"space_sharing": True},
    ),
    "settings changed": Scenario(
        (*TWO, (2.0, restarts(round_seconds=3.0, min_seconds_between_allocations=7.0, restart_seconds=1.0)))
    ),
    "policy and mechanism changed": Scenario(
        (
            *TWO,
            (0.0, submits("z", 20.0)),
            (2.0, restarts(policy="fifo", mechanism="plain")),
            (5.0, restarts(policy="max_min_fairness", mechanism="credits", space_sharing=True)),
        )
    ),
    "journal that fails for a while": Scenario((*TWO, (2.0, failing("before", "before", "", "before")))),
    "appends with unknown outcome": Scenario((*TWO, (1.0, failing("after", "", "after", "", "before", "after")))),
    "old leader that comes back": Scenario(
        (*TWO, (2.0, lambda world: world.replace_scheduler(3.0)), (2.5, submits("z", 20.0)))
    ),
    "scheduler that stands still": Scenario((*TWO, (2.0, lambda world: world.stand_still(5.0)))),
    "kept states in between": Scenario((*TWO, (2.0, restarts())), world={"facts_between_states": 4}),
    "agents that join later": Scenario((*TWO, (4.0, lambda world: void(world.add_agent("a", "v100", 1)))), agents=()),
    "scheduler away for longer than leases last": Scenario((*LONG, (3.0, restarts(12.0))), world=LONG_LEASES),
    "relaunch while the end of the attempt before is being written": Scenario(
        (
            *LONG,
            (2.0, lambda world: world.operator_drains("a", now=True)),
            (2.25, lambda world: world.operator_undrains("a")),
        ),
        agents=(("a", "v100", 1),),
        world={"writes": 1.0, "seed": 3},
    ),
    "orders that arrive late": Scenario(
        (
            *LONG,
            (0.5, to("a", lambda agent: setattr(agent, "late_orders", 3.0))),
            (2.0, lambda world: world.operator_drains("a", now=True)),
            (6.0, to("a", lambda agent: setattr(agent, "late_orders", 0.0))),
        ),
    ),
    "checkpoints removed": Scenario(
        (*TWO, (4.0, cancels("y")), (0.0, removes("x")), (0.0, removes("y"))), outcomes={"y": EITHER}
    ),
    "checkpoints removed while an agent is away": Scenario(
        (
            *TWO,
            (3.0, to("b", lambda agent: agent.lose_connection(9.0))),
            (3.0, cancels("y")),
            (3.0, removes("y")),
            (3.0, removes("x")),
        ),
        outcomes={"y": EITHER},
    ),
    "slow writes and slow messages": Scenario(
        (*TWO, (3.0, fails("y")), (4.0, cancels("x"))),
        world={"delays": 0.6, "writes": 0.6, "doubles": 0.2},
        outcomes={"x": EITHER},
    ),
}

DOWN = (0.5, 1.5, 7.0)
"""Seconds that a scheduler stays away after a crash: the crash point decides which."""


def base(scenario: Scenario, folder: Path, *, labels: bool = False) -> VirtualFleet:
    """Play a scenario without any crash but its own, and keep the state after every batch."""
    world = scenario.build(folder)
    world.checker.states = {}
    world.labels = [] if labels else None
    scenario.play(world)
    return world


def crashed(scenario: Scenario, folder: Path, at: int) -> VirtualFleet:
    """Play it with the scheduler's end at one operation."""
    world = scenario.build(folder, crash_at=at, down_seconds=DOWN[at % len(DOWN)])
    scenario.play(world)
    return world


__all__ = ["SCENARIOS", "Scenario", "base", "crashed", "replace"]
