"""What jobs need beside accelerators: servers are never promised twice, and nothing idles beside a job that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.client.requests import JobRequest
from gavel.core.cluster import Server
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobFinished,
    JobSubmitted,
    RoundDue,
    ServerJoined,
    ServerLost,
    Solve,
    WakeAt,
)
from gavel.core.jobs import NO_NEEDS, JobSpec, Needs
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings, check_invariants
from gavel.scheduler.obstacles import never_fits, waits_for
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Elapsed, Mechanism, Plan, RoundInput, Run, RunNumbers
from gavel.scheduler.rules import Rules

TABLE = builtin_table()
TEMPLATE = "ResNet-50 (batch size 64)"
GIB = 2**30


class Careless:
    """A mechanism of a user's own: every round it starts whatever accelerators are free for, and swaps some runs."""

    def adopt(self, allocation: Any, slots: Any) -> None: ...
    def account(self, elapsed: Elapsed) -> None: ...
    def leave(self, slot: int) -> None: ...
    def restore(self, document: Any, runs: Any) -> None: ...

    def dump(self, _: RunNumbers) -> dict[str, Any]:
        return {"kind": "careless"}

    def decide(self, given: RoundInput) -> Plan:
        stopped = [] if given.mid_round else list(given.running)[::2]
        free = np.array(given.free)
        for run in stopped:
            free[run.type_index] += run.workers
        started = []
        for slot in given.waiting.tolist():
            for type_index in np.argsort(-given.rates[slot]).tolist():
                if given.rates[slot, type_index] > 0 and given.workers[slot] <= free[type_index]:
                    free[type_index] -= given.workers[slot]
                    started.append(Run((slot,), type_index, int(given.workers[slot])))
                    break
        return Plan(stopped, started)


MECHANISMS: dict[str, Callable[[], Mechanism]] = {
    "credits": lambda: Credits(Rules(holding=False)),
    "priorities": Priorities,
    "careless": Careless,
}


class Cluster:
    """A scheduler whose questions are answered at once."""

    def __init__(self, *servers: Server, mechanism: Mechanism | None = None, space_sharing: bool = False) -> None:
        self.machine = Scheduler(TABLE, mechanism or Credits(), Settings(space_sharing=space_sharing))
        self.time = 0.0
        for server in servers:
            self.tell(ServerJoined(0.0, server))

    def tell(self, event: Event) -> None:
        due: list[Event] = [event]
        while due:
            commands: list[Command] = self.machine.handle(due.pop(0))
            check_invariants(self.machine)
            for command in commands:
                if isinstance(command, Solve):
                    due.append(AllocationReady(self.time, command.number, allocate(command.problem)))
                elif isinstance(command, WakeAt) and command.time <= self.time:
                    due.append(RoundDue(command.time))

    def submit(
        self, name: str, needs: Needs = NO_NEEDS, workers: int = 1, types: tuple[str, ...] | None = None
    ) -> None:
        self.tell(JobSubmitted(self.time, JobSpec(name, TEMPLATE, workers, 1e7, types=types, needs=needs)))

    def round(self) -> None:
        self.time += 360.0
        self.tell(RoundDue(self.time))

    @property
    def running(self) -> dict[str, dict[str, int]]:
        machine = self.machine
        return {machine.roster.name(slot): dict(machine.placed[run]) for slot, run in machine.run_of.items()}

    @property
    def idle(self) -> list[str]:
        """Waiting jobs that would fit beside what runs."""
        machine, room = self.machine, self.machine.room()
        return [
            machine.roster.name(slot)
            for slot in machine.roster.waiting.tolist()
            for type_index in range(len(machine.types))
            if machine.roster.rates[slot, type_index] > 0
            and room.find((slot,), type_index, int(machine.roster.workers[slot])) is not None
        ]


some_needs = st.builds(
    Needs,
    gpu_memory=st.sampled_from([0, 0, 8, 16, 32]),
    millicores=st.sampled_from([0, 0, 500, 2000, 7000, 16000]),
    memory=st.sampled_from([0, 0, 10, 33, 100]),
)
some_servers = st.lists(
    st.builds(
        lambda kind, size, cpus, memory, each: (kind, size, cpus, memory, each),
        st.sampled_from(["v100", "k80"]),
        st.integers(1, 4),
        st.sampled_from([0.0, 4.0, 7.0, 16.0]),
        st.sampled_from([0, 50, 101]),
        st.sampled_from([0, 16, 32]),
    ),
    min_size=1,
    max_size=4,
)
some_jobs = st.lists(st.tuples(some_needs, st.sampled_from([1, 1, 1, 2])), min_size=1, max_size=10)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(servers=some_servers, jobs=some_jobs, sharing=st.booleans(), data=st.data())
@settings(max_examples=15)
def test_no_plan_promises_more_than_servers_have_and_nothing_idles_beside_a_job_that_fits(
    mechanism: str, servers: list[tuple[str, int, float, int, int]], jobs: list[Any], sharing: bool, data: st.DataObject
) -> None:
    """The invariants are checked after every event."""
    named = [Server(f"s{number}", *figures) for number, figures in enumerate(servers)]
    cluster = Cluster(*named, mechanism=MECHANISMS[mechanism](), space_sharing=sharing)
    for number, (needs, workers) in enumerate(jobs):
        cluster.submit(f"j{number}", needs, workers)
    for _ in range(data.draw(st.integers(1, 6))):
        cluster.round()
        if mechanism != "careless":
            assert not cluster.idle
        if cluster.running and data.draw(st.sampled_from([False, True])):
            cluster.tell(JobFinished(cluster.time, data.draw(st.sampled_from(sorted(cluster.running)))))


class Swaps(Careless):
    """A mechanism that starts jobs where accelerators are free, and stops its second run for a job that waits."""

    def decide(self, given: RoundInput) -> Plan:
        running, waiting = list(given.running), given.waiting.tolist()
        started = [Run((slot,), 0, 1) for slot in waiting]
        if len(running) < 2:
            return Plan((), started[: given.free[0]])
        return Plan(running[1:], started[:1]) if started and not given.mid_round else Plan()


def test_what_would_stop_for_a_run_that_fits_nowhere_continues() -> None:
    cluster = Cluster(Server("a", "v100", 2, cpus=8), mechanism=Swaps())
    cluster.submit("first", Needs(millicores=5000))
    cluster.submit("second", Needs(millicores=3000))
    cluster.round()
    cluster.submit("large", Needs(millicores=8000))
    cluster.round()
    assert cluster.running.keys() == {"first", "second"}
    cluster.submit("small", Needs(millicores=2000))
    cluster.tell(JobFinished(cluster.time, "large"))
    cluster.round()
    assert cluster.running.keys() == {"first", "small"}


def test_cores_are_counted_on_each_server() -> None:
    cluster = Cluster(Server("a", "v100", 4, cpus=16), Server("b", "v100", 4, cpus=16))
    for number in range(3):
        cluster.submit(f"j{number}", Needs(millicores=10_000))
    cluster.round()
    assert sorted(name for where in cluster.running.values() for name in where) == ["a", "b"]
    cluster.submit("small", Needs(millicores=6000))
    cluster.round()
    assert len(cluster.running) == 3, "six cores are left beside each of the two"


def test_a_job_without_a_statement_takes_its_accelerators_part_of_the_server() -> None:
    cluster = Cluster(Server("a", "v100", 4, cpus=16, memory_bytes=64 * GIB))
    cluster.submit("large", Needs(millicores=9000))
    for number in range(3):
        cluster.submit(f"j{number}")
    cluster.round()
    assert len(cluster.running) == 2, "7 cores are left, and each of the others takes 4"


@pytest.mark.parametrize("mechanism", ["credits", "priorities"])
def test_a_job_with_large_needs_gets_its_turn_although_small_ones_always_fit(mechanism: str) -> None:
    cluster = Cluster(Server("a", "v100", 4, cpus=16), mechanism=MECHANISMS[mechanism]())
    for number in range(6):
        cluster.submit(f"small{number}", Needs(millicores=4000))
    cluster.round()
    cluster.submit("large", Needs(millicores=13_000))
    ran = 0
    for _ in range(40):
        cluster.round()
        ran += "large" in cluster.running
    assert ran >= 2


def test_types_with_too_little_accelerator_memory_are_not_used() -> None:
    cluster = Cluster(Server("a", "v100", 1, accelerator_memory=16), Server("b", "k80", 1, accelerator_memory=24))
    cluster.submit("large", Needs(gpu_memory=20))
    cluster.submit("huge", Needs(gpu_memory=80))
    cluster.round()
    assert cluster.running == {"large": {"b": 1}}
    assert cluster.machine.rates_of("huge") == dict.fromkeys(TABLE.types, 0.0) | {
        "p100": cluster.machine.rates_of("huge")["p100"]
    }


def test_only_those_servers_of_a_type_are_used_whose_accelerators_are_large_enough() -> None:
    cluster = Cluster(Server("a", "v100", 2, accelerator_memory=16), Server("b", "v100", 2, accelerator_memory=32))
    for number in range(4):
        cluster.submit(f"large{number}", Needs(gpu_memory=20))
    cluster.round()
    assert list(cluster.running.values()) == [{"b": 1}, {"b": 1}]


def test_accelerators_of_unknown_memory_are_no_obstacle() -> None:
    cluster = Cluster(Server("a", "v100", 1))
    cluster.submit("large", Needs(gpu_memory=80 * GIB))
    cluster.round()
    assert cluster.running == {"large": {"a": 1}}


def test_servers_that_join_or_leave_change_which_types_fit() -> None:
    cluster = Cluster(Server("a", "v100", 1, cpus=4))
    cluster.submit("large", Needs(millicores=8000), types=("v100",))
    cluster.round()
    assert not cluster.running
    cluster.tell(ServerJoined(cluster.time, Server("b", "v100", 1, cpus=8)))
    assert cluster.machine.rates_of("large")["v100"] > 0
    cluster.round()
    assert cluster.running == {"large": {"b": 1}}
    cluster.tell(ServerLost(cluster.time, "b"))
    cluster.round()
    assert not cluster.running
    assert not any(cluster.machine.rates_of("large").values())


def test_pairs_that_together_exceed_the_accelerator_are_not_formed() -> None:
    """Without the statement the two would share: the table says that it pays."""

    def shares(needs: Needs) -> bool:
        cluster = Cluster(Server("a", "v100", 1, accelerator_memory=16), space_sharing=True)
        for name in ("one", "other"):
            cluster.tell(JobSubmitted(0.0, JobSpec(name, "A3C", 1, 1e9, needs=needs)))
        cluster.round()
        problem = cluster.machine.problem(cluster.time)
        return bool(problem.pairs.rates[..., problem.column_type == 0].any())

    assert shares(NO_NEEDS)
    assert shares(Needs(gpu_memory=8))
    assert not shares(Needs(gpu_memory=9))


def test_a_gang_is_spread_over_servers_that_together_have_enough() -> None:
    cluster = Cluster(Server("a", "v100", 4, cpus=16), Server("b", "v100", 4, cpus=16))
    cluster.submit("gang", Needs(millicores=8000), workers=4)
    cluster.submit("never", Needs(millicores=8000), workers=8, types=("v100",))
    cluster.round()
    assert cluster.running == {"gang": {"a": 2, "b": 2}}
    assert not any(cluster.machine.rates_of("never").values())


def test_smaller_runs_move_aside_for_a_gang_that_is_slower_apart() -> None:
    cluster = Cluster(Server("a", "v100", 2, cpus=8), Server("b", "v100", 2, cpus=8))
    cluster.submit("one", Needs(millicores=1000))
    cluster.round()
    cluster.submit("other", Needs(millicores=4000))
    cluster.submit("gang", Needs(millicores=4000), workers=2)
    for _ in range(3):
        cluster.round()
    assert len(cluster.running["gang"]) == 1
    assert len(cluster.running) == 3


def test_a_request_states_cores_in_thousandths() -> None:
    submitted = JobRequest(["train"], cpus=1.5, memory="2G", gpu_memory="1G").submission()
    assert JobSpec.of("1", submitted).needs == Needs(GIB, 1500, 2 * GIB)
    assert JobSpec.of("1", JobRequest(["train"]).submission()).needs is NO_NEEDS


@pytest.mark.parametrize(
    ("needs", "workers", "reason"),
    [
        (
            Needs(gpu_memory=80 * GIB),
            1,
            "needs 80G of accelerator memory, and the largest type it may use, v100, has 16G",
        ),
        (Needs(millicores=64_000), 1, "needs 64 CPU cores, and the largest server it may use, a, has 16"),
        (Needs(memory=512 * GIB), 1, "needs 512G of RAM, and the largest server it may use, a, has 64G"),
        (
            Needs(millicores=9000),
            2,
            "needs 9 CPU cores for each of its 2 workers, and its types' servers have too little",
        ),
        (Needs(millicores=9000), 1, None),
    ],
)
def test_the_reason_says_what_no_server_has(needs: Needs, workers: int, reason: str | None) -> None:
    cluster = Cluster(Server("a", "v100", 4, cpus=16, memory_bytes=64 * GIB, accelerator_memory=16 * GIB))
    cluster.submit("job", needs, workers)
    said = never_fits(cluster.machine, "job", ())
    assert said == (None if reason is None else f"it {reason}")
    assert said is None or not any(cluster.machine.rates_of("job")[name] for name in ("v100",))


def test_the_reason_says_what_a_job_waits_for() -> None:
    cluster = Cluster(Server("a", "v100", 4, cpus=16, memory_bytes=64 * GIB))
    cluster.submit("first", Needs(millicores=15_000))
    cluster.round()
    cluster.submit("second", Needs(millicores=6000, memory=8 * GIB))
    cluster.submit("third")
    cluster.submit("gang", Needs(millicores=1000), workers=2)
    said = {job: waits_for(cluster.machine, job) for job in ("second", "third", "gang")}
    assert said == {
        "second": "waits for a server with 6 free CPU cores and 8G of free RAM",
        "third": "waits for a server where its accelerators' part of the CPU cores and RAM is free",
        "gang": "waits for servers with 1 free CPU core for each of its 2 workers",
    }
