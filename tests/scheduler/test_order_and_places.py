"""Placement and order of service: small cases that a careless change would break."""

from __future__ import annotations

from gavel.core.cluster import Server
from gavel.core.events import (
    AllocationReady,
    JobCancelled,
    JobFailed,
    JobSubmitted,
    Launch,
    RoundDue,
    ServerJoined,
    Solve,
)
from gavel.core.facts import RoundPlanned, Started
from gavel.core.jobs import Cause, JobSpec
from gavel.core.locality import Locality
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings, check_invariants
from gavel.scheduler.placement import ServerPool
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Run
from gavel.scheduler.seating import Seating
from gavel.scheduler.state import dump, restore


def scheduler(*servers: Server) -> Scheduler:
    machine = Scheduler(builtin_table(), Credits(), Settings())
    for server in servers:
        machine.handle(ServerJoined(0.0, server))
    return machine


def asked(machine: Scheduler, time: float) -> Solve:
    (solve,) = [command for command in machine.handle(RoundDue(time)) if isinstance(command, Solve)]
    return solve


def answered(machine: Scheduler, time: float, solve: Solve) -> list[Launch]:
    commands = machine.handle(AllocationReady(time, solve.number, allocate(solve.problem)))
    check_invariants(machine)
    return [command for command in commands if isinstance(command, Launch)]


def test_a_gang_gets_the_fullest_server_that_holds_it() -> None:
    pool = ServerPool()
    for name, size in (("large", 8), ("small", 2), ("middle", 4)):
        pool.join(Server(name, "v100", size))
    assert pool.take(2) == {"small": 2}
    assert pool.take(1) == {"middle": 1}
    assert pool.take(3) == {"middle": 3}
    assert pool.take(8) == {"large": 8}


def test_after_a_job_left_during_a_solve_the_next_round_asks_again() -> None:
    machine = scheduler(Server("a", "v100", 2))
    for name in ("one", "two"):
        machine.handle(JobSubmitted(0.0, JobSpec(name, "A3C", 1, 1e6)))
    solve = asked(machine, 0.0)
    machine.handle(JobCancelled(0.1, "two"))
    answered(machine, 0.5, solve)
    assert asked(machine, 360.5).number == solve.number + 1


def test_an_answer_to_an_earlier_question_is_ignored() -> None:
    machine = scheduler(Server("a", "v100", 2))
    machine.handle(JobSubmitted(0.0, JobSpec("one", "A3C", 1, 1e6)))
    first = asked(machine, 0.0)
    machine.handle(RoundDue(1.0))  # the round begins without an answer
    machine.handle(JobSubmitted(2.0, JobSpec("two", "A3C", 1, 1e6)))
    second = asked(machine, machine.round_ends or 0.0)
    assert second.number > first.number
    before = machine.allocation
    answered(machine, 400.0, first)
    assert machine.allocation is before
    assert machine.unanswered == second
    answered(machine, 400.0, second)
    assert machine.allocation is not before


def test_a_job_runs_again_at_the_very_moment_at_which_its_pause_ends() -> None:
    machine = scheduler(Server("a", "v100", 1))
    machine.handle(JobSubmitted(0.0, JobSpec("one", "A3C", 1, 1e6)))
    answered(machine, 0.0, asked(machine, 0.0))
    machine.handle(JobFailed(10.0, "one", "crash", not_before=50.0))
    machine.handle(RoundDue(10.0))
    assert machine.wake == 50.0
    assert [launch.attempt for launch in answered(machine, 50.0, asked(machine, 50.0))] == [2]


def test_runs_can_swap_places_because_all_leave_before_any_is_placed() -> None:
    machine = scheduler(Server("a", "v100", 1), Server("b", "v100", 1))
    for name in ("one", "two"):
        machine.handle(JobSubmitted(0.0, JobSpec(name, "A3C", 1, 1e6)))
    launches = answered(machine, 0.0, asked(machine, 0.0))
    where = {launch.job: next(iter(launch.accelerators)) for launch in launches}
    other = {"a": "b", "b": "a"}
    moved = tuple(
        Started((job,), (2,), "v100", {other[server]: 1}, Locality.SERVER, Cause("seated"))
        for job, server in where.items()
    )
    machine.evolve(RoundPlanned(10.0, 2, 360.0, 360.0, moved=moved, mid_round=True))
    check_invariants(machine)
    assert {next(iter(place)) for place in machine.placed.values()} == {"a", "b"}


def pool_with(*servers: tuple[str, int]) -> ServerPool:
    pool = ServerPool()
    for name, size in servers:
        pool.join(Server(name, "v100", size))
    return pool


def test_a_gang_that_cannot_be_consolidated_keeps_its_placement() -> None:
    pool = pool_with(("a", 2), ("b", 2))
    gang, blocker = Run((0,), 0, 2), Run((1,), 0, 2)
    placed = {run: pool.take_exactly({"a": 1, "b": 1}) for run in (gang, blocker)}
    seating = Seating([pool], placed, lambda _: True)
    seating.gather([gang])
    assert seating.moves() == {}
    seating.stop(blocker)
    assert seating.seat(Run((2,), 0, 2), make_room=False) == {"a": 1, "b": 1}


def test_runs_that_stop_are_not_moved_to_make_room() -> None:
    pool = pool_with(("a", 2), ("b", 2), ("c", 1))
    gang = Run((9,), 0, 2)
    leaving, staying, third = Run((0,), 0, 1), Run((1,), 0, 1), Run((2,), 0, 1)
    placed = {
        leaving: pool.take_exactly({"a": 1}),
        staying: pool.take_exactly({"a": 1}),
        third: pool.take_exactly({"b": 1}),
    }
    seating = Seating([pool], placed, lambda _: True)
    seating.stop(leaving)
    where = seating.seat(gang, make_room=True)
    assert sum(where.values()) == 2
    assert leaving not in seating.moves()


def test_jobs_that_take_turns_leave_their_accelerators_and_every_launch_has_its_own_number() -> None:
    machine = Scheduler(builtin_table(), Priorities(), Settings())
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    for name in ("one", "two"):
        machine.handle(JobSubmitted(0.0, JobSpec(name, "A3C", 1, 1e6)))
    launches = answered(machine, 0.0, asked(machine, 0.0))
    for _ in range(6):
        commands = machine.handle(RoundDue(machine.round_ends or 0.0))
        check_invariants(machine)
        launches += [command for command in commands if isinstance(command, Launch)]
    numbers = [(launch.job, launch.attempt) for launch in launches]
    assert len(numbers) == len(set(numbers)) > 4


def test_the_end_of_a_job_makes_the_next_round_ask_again() -> None:
    machine = scheduler(Server("a", "v100", 2))
    for name in ("one", "two"):
        machine.handle(JobSubmitted(0.0, JobSpec(name, "A3C", 1, 1e6)))
    first = asked(machine, 0.0)
    answered(machine, 0.0, first)
    machine.handle(JobCancelled(10.0, "two"))
    assert asked(machine, 360.0).number == first.number + 1


def pausing() -> Scheduler:
    """Two accelerators: one job runs; the other failed and pauses until long after the round."""
    machine = scheduler(Server("a", "v100", 2))
    for name in ("one", "two"):
        machine.handle(JobSubmitted(0.0, JobSpec(name, "A3C", 1, 1e6)))
    answered(machine, 0.0, asked(machine, 0.0))
    machine.handle(JobFailed(10.0, "two", "crash", not_before=1000.0))
    return machine


def test_a_pausing_job_is_in_no_plan_and_in_no_problem_also_after_a_restart() -> None:
    machine = pausing()
    again = restore(dump(machine), builtin_table(), Credits(), Settings())
    for each in (machine, again):
        assert not [command for command in each.handle(RoundDue(10.0)) if isinstance(command, Launch)]
        solve = asked(each, 360.0)
        assert solve.problem.jobs.ids == ("one",)
        assert answered(each, 360.0, solve) == []


def test_a_closed_server_accepts_no_runs_and_what_they_free_is_no_capacity() -> None:
    pool = pool_with(("a", 2), ("b", 2))
    taken = pool.take_exactly({"a": 1})
    pool.close("a")
    assert (pool.capacity, pool.free) == (3, 2)
    assert pool.take(1) == {"b": 1}
    pool.give_back(taken)
    assert (pool.capacity, pool.free) == (2, 1)
    assert not pool.holds(2)
    pool.reopen("a")
    assert pool.take(2) == {"a": 2}


def test_a_restored_pool_has_the_same_free_and_closed_servers() -> None:
    pool = pool_with(("a", 4), ("b", 2), ("c", 2))
    pool.take_exactly({"a": 1, "c": 1})
    pool.close("c")
    again = ServerPool.restored(pool.dump())
    assert (
        (again.capacity, again.free, again.closed) == (pool.capacity, pool.free, pool.closed) == (7, 5, frozenset("c"))
    )
    assert again.dump() == pool.dump()


def test_room_is_made_by_moving_a_single_worker_from_its_place() -> None:
    pool = pool_with(("a", 2), ("b", 2))
    one, two = Run((0,), 0, 1), Run((1,), 0, 1)
    placed = {one: pool.take_exactly({"a": 1}), two: pool.take_exactly({"b": 1})}
    seating = Seating([pool], placed, lambda _: True)
    where = seating.seat(Run((2,), 0, 2), make_room=True)
    ((moved, to),) = seating.moves().items()
    assert len(where) == 1
    assert {**where, **to} == {next(iter(where)): 2, next(iter(to)): 1}
    assert next(iter(where)) == next(iter(placed[moved]))
