"""A random campaign by seed: every kind of fault, often several at once, on a small cluster with all kinds of jobs.

    python tests/runtime/fault_campaign.py --seeds 200

prints how many faults of each kind were survived; a failure names its seed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from virtual_agent import Agent
from virtual_fleet import SETTINGS, VirtualFleet, shared_connections

from gavel.runtime.events import HoldAsked, ReleaseAsked, RequeueAsked
from gavel.security.quotas import EVERYBODY, Kind, Subject

TROUBLED_SECONDS = 90.0
QUIET_SECONDS = 900.0
"""Everything has finished this long after the last fault."""
VERBS: tuple[type[HoldAsked | ReleaseAsked | RequeueAsked], ...] = (
    HoldAsked,
    HoldAsked,
    ReleaseAsked,
    RequeueAsked,
    RequeueAsked,
)
PAIRED = "ResNet-18 (batch size 16)"
"""A template of which the table knows that two of its jobs share an accelerator well."""

EDITS: tuple[dict[str, Any], ...] = (
    {"weight": 3.0, "retries": 1000},
    {"steps": 160.0},
    {"steps": 200.0, "deadline_seconds": 60.0},
    {"types": ("v100",), "prefer": ()},
    {"types": ("v100", "k80"), "prefer": ("k80",)},
    {"types": (), "prefer": ("v100",)},
    {"types": (), "prefer": ()},
    {"time_limit_seconds": 20.0},
    {"time_limit_seconds": 1e6},
    {"time_limit_seconds": None, "idle_timeout_seconds": 30.0},
)
"""What an edit may change; whatever comes of it, a job can still run somewhere."""
SUBJECTS = (EVERYBODY, Subject(Kind.USER, "ann"), Subject(Kind.TEAM, "lab"), Subject(Kind.TEAM, "lab/vision"))


class Campaign:
    """One seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.world = world = VirtualFleet(
            folder,
            seed,
            round_seconds=rng.choice([2.0, 5.0, 12.0]),
            facts_between_states=rng.choice([5, 40, 5_000]),
            crash_rate=rng.choice([0.0, 0.002]),
            delays=rng.choice([0.0, 0.4, 0.8]),
            writes=rng.choice([0.0, 0.5]),
            doubles=rng.choice([0.0, 0.1]),
            saves=rng.choice([1.0, 0.7]),
            slow_to_leave=rng.random() < 0.5,
        )
        grace = rng.choice([1.0, 4.0])
        world.with_settings(
            space_sharing=rng.random() < 0.5,
            fleet=replace(SETTINGS, checkpoint_grace_seconds=grace, lease_slack_seconds=rng.choice([2.0, 5.0])),
        )
        self.submitted = 0
        self.others = 0
        self.limiting = random.Random(seed + 1_000_000)
        """Chooses owners and limits."""
        self.editing = random.Random(seed + 2_000_000)
        """Chooses edits."""
        self.edits = 0

    # ---- faults ----

    def agent(self) -> Agent:
        return self.random.choice(list(self.world.agents.values()))

    def crash_scheduler(self) -> bool:
        """End it at one of its next operations, whatever that is; counted when it happens."""
        self.world.crash_at = self.world.points + self.random.randint(1, 60)
        self.world.down_seconds = self.random.choice([0.25, 1.0, 3.0, 12.0])
        return False

    def step_clock(self) -> None:
        self.world.wall_offset += self.random.choice([3600.0, -3600.0])
        self.crash_scheduler()

    def change_settings(self) -> None:
        rng = self.random
        self.world.with_settings(
            round_seconds=rng.choice([1.0, 2.0, 5.0, 12.0]),
            policy=rng.choice(["max_min_fairness", "fifo"]),
            mechanism=rng.choice(["plain", "credits"]),
            space_sharing=rng.random() < 0.5,
            min_seconds_between_allocations=rng.choice([0.0, 4.0]),
        )
        self.crash_scheduler()

    def replace_scheduler(self) -> bool:
        if self.world.leader is None or self.world.leader.frozen:
            return False
        self.world.replace_scheduler(self.random.uniform(2.0, 8.0))
        return True

    def stand_still(self) -> bool:
        self.world.stand_still(self.random.uniform(1.0, 8.0))
        return self.world.leader is not None

    def fail_journal(self) -> bool:
        """Have some of the next writes fail; counted when they do."""
        self.world.journal_fails += [
            self.random.choice(["before", "after", ""]) for _ in range(self.random.randint(1, 12))
        ]
        return False

    def break_connection(self) -> None:
        self.agent().lose_connection(self.random.choice([0.0, 1.0, 4.0, 12.0]))

    def kill_agent(self) -> None:
        self.agent().die(self.random.choice([0.25, 2.0, 8.0]))

    def hang_agent(self) -> None:
        self.agent().hang(self.random.choice([1.0, 4.0, 9.0, 20.0]))

    def delay_orders(self) -> None:
        self.agent().late_orders = self.random.choice([0.0, 0.0, 1.0, 2.5])

    def double_name(self) -> bool:
        """Another machine with the same name appears; the first one is switched off later."""
        agent = self.agent()
        if self.others == 3 or agent.gone:
            return False
        self.others += 1
        agent.hang(self.random.uniform(3.0, 10.0))
        self.world.add_agent(agent.name, agent.kind, agent.count, identity=f"other-{self.others}")
        return True

    def drain_agent(self) -> bool:
        agent, world = self.agent(), self.world
        if all(known.name != agent.name for known in self.known_agents()):
            return False
        world.operator_drains(agent.name, now=self.random.random() < 0.5)
        world.operator_undrains(agent.name)
        return True

    def known_agents(self) -> list[Agent]:
        engine = self.world.engine
        known = {record.agent for record in engine.state.agents} if engine is not None else set()
        return [agent for agent in self.world.agents.values() if agent.identity in known]

    def agent_leaves(self) -> None:
        agent = self.agent()
        agent.drain()
        agent.leaves_at = self.world.now + 3.0

    def crash_job(self) -> bool:
        running = [(agent, job) for agent in self.world.agents.values() for job, _ in agent.tasks]
        if not running:
            return False
        agent, job = self.random.choice(running)
        return agent.crash_task(job, blameless=self.random.random() < 0.3)

    def cancel_job(self) -> bool:
        labels = [label for label, job in self.world.keys.items() if job not in self.world.checker.ended]
        if not labels or self.random.random() < 0.5:
            return False
        self.world.client_cancels(self.random.choice(labels))
        return True

    def remove_checkpoints(self) -> bool:
        """Have the checkpoints of a job removed, now or when it has finished."""
        labels = [label for label, job in self.world.keys.items() if job not in self.world.checker.unwanted]
        if not labels:
            return False
        self.world.client_removes_checkpoints(self.random.choice(labels))
        return True

    def submit_job(self) -> None:
        if self.submitted < 25:
            rng = self.random
            self.submitted += 1
            template = rng.choice([PAIRED, "mine"])
            self.world.client_submits(
                f"job {self.submitted}",
                rng.uniform(5.0, 150.0),
                workers=1 if template == PAIRED else rng.choice([1, 2, 3]),
                retries=rng.choice([0, 2, 1000]),
                template=template,
                user=self.limiting.choice(["ann", "bob"]),
                entity=self.limiting.choice([None, "lab", "lab/vision"]),
                launcher=self.limiting.choice(["per-device", "per-server"]),
                grace_seconds=self.limiting.choice([None, 0.5, 10.0]),
            )

    def ask_for_jobs(self) -> str:
        """A client holds, releases or requeues a job; those that are held are released in the end."""
        asked = self.limiting.choice(VERBS)
        labels = [label for label, job in self.world.keys.items() if job not in self.world.checker.ended]
        if labels:
            self.world.client_asks(asked, self.limiting.choice(labels))
        return asked.__name__

    def change_limit(self) -> None:
        """An operator limits a user, a team or every user, or lifts a limit."""
        subject = self.limiting.choice(SUBJECTS)
        self.world.operator_limits(subject, self.limiting.choice([0, 1, 2, 3, 4]))

    def edit_job(self) -> bool:
        """Change a job, whatever it does; an edit of a job that has finished meanwhile is refused."""
        labels = [label for label, job in self.world.keys.items() if job not in self.world.checker.ended]
        if not labels:
            return False
        self.edits += 1
        new: dict[str, Any] = {"name": f"edit {self.edits}", **self.editing.choice(EDITS)}
        self.world.client_edits(self.editing.choice(labels), **new)
        return True

    # ---- one run ----

    def play(self) -> Counter[str]:
        """Trouble for a while, then quiet until everything has finished; returns the faults by kind."""
        world, faults = self.world, Counter[str]()
        kinds: list[Callable[[], bool | None]] = [
            *[self.crash_scheduler] * 6,
            *[self.break_connection, self.hang_agent] * 3,
            *[self.kill_agent, self.cancel_job, self.crash_job, self.fail_journal] * 2,
            self.step_clock,
            self.change_settings,
            self.replace_scheduler,
            self.stand_still,
            self.delay_orders,
            self.double_name,
            self.drain_agent,
            self.agent_leaves,
            self.remove_checkpoints,
        ]
        try:
            world.boot()
            for number in range(2):
                world.add_agent(f"fast{number}", "v100", 2)
            world.add_agent("slow", "k80", 1)
            for _ in range(6):
                self.submit_job()
            end = world.now + TROUBLED_SECONDS
            while world.now < end:
                if self.random.random() < 0.12:
                    fault = self.random.choice(kinds)
                    if fault() is not False:
                        faults[fault.__name__] += 1
                if self.random.random() < 0.04:
                    self.submit_job()
                if self.editing.random() < 0.05 and self.edit_job():
                    faults["job edited"] += 1
                if self.limiting.random() < 0.02:
                    self.change_limit()
                    faults["limit changed"] += 1
                if self.limiting.random() < 0.04:
                    faults[self.ask_for_jobs()] += 1
                world.step()
            self.calm()
            world.run_until_over(QUIET_SECONDS)
            world.checker.check_outcomes()
        finally:
            world.finish()
        faults["journal failed"] = world.counts["append failed"] + world.counts["append in doubt"]
        faults["message doubled"] = world.counts["doubled"]
        faults["scheduler crashed"] = world.crashes
        return faults

    def calm(self) -> None:
        """The end of all faults: one machine of each name is left and takes work, and rounds outlast restarts.

        Limits remain, but none is below the size of a job.
        """
        world = self.world
        for subject in SUBJECTS:
            world.operator_limits(subject, self.limiting.choice([0, 3, 4]))
        for label in world.keys:
            world.client_asks(ReleaseAsked, label)  # refused for those that no user holds
        world.with_settings(round_seconds=12.0, min_seconds_between_allocations=0.0)
        if world.leader is not None:
            world.kill_scheduler(1.0)  # also a suspended one: only a scheduler that starts takes the settings over
        world.journal_fails.clear()
        world.crash_at, world.crash_rate = 0, 0.0
        names: set[str] = set()
        for agent in reversed(list(world.agents.values())):
            agent.late_orders, agent.hung_until, agent.away_until = 0.0, 0.0, 0.0
            if agent.name in names:
                agent.vanish()
            elif agent.draining:
                agent.die()
            names.add(agent.name)


def play(folder: Path, seed: int) -> Counter[str]:
    """Play one seed in an empty folder."""
    try:
        return Campaign(folder, seed).play()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    wanted = parser.parse_args()
    total, failed = Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder, shared_connections():
        place = Path(folder) / "run"
        for seed in range(wanted.first, wanted.first + wanted.seeds):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            try:
                total += play(place, seed)
            except AssertionError as error:
                failed += 1
                print(error, flush=True)
    for kind, count in total.most_common():
        print(f"{kind}: {count}")
    print(f"{wanted.seeds} seeds, {total.total()} faults, {failed} failures")


if __name__ == "__main__":
    main()
