"""Checks what a campaign of `tools/chaos.py` left behind against the guarantees; findings are sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos_cluster import PLAIN, SERVE, Cluster

from gavel.client.views import JobView
from gavel.journal import journal_url, open_read_only
from gavel.runtime.configuration import Configurator, ServeSettings
from gavel.runtime.recovery import apply, recover
from gavel.runtime.state import ClusterState

ALARMING = ("Traceback (most recent call last)", "refused, please report it", "a bug in the agent")


@dataclass
class Rank:
    """The ledger of one rank, read line by line."""

    job: str
    rank: int
    attempt: int = 0
    at: int = 0
    """The last step of the attempt."""
    reached: int = 0
    kept: int = 0
    """The step of the newest checkpoint that is certain to exist."""
    saving: int | None = None
    repeated: int = 0
    """Steps repeated after a crash."""
    findings: list[str] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)
    """By attempt: the step that it began with."""
    ended: dict[int, int] = field(default_factory=dict)
    """By attempt that ended in an orderly way: its last step."""

    def read(self, text: str) -> None:
        """Read all lines; a line cut off by a kill lacks its end."""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                kind, attempt, *values = line.split()
                self._take(kind, int(attempt), [int(value) for value in values])

    def _take(self, kind: str, attempt: int, values: list[int]) -> None:
        if attempt < self.attempt:
            self._find(f"attempt {attempt} wrote after attempt {self.attempt} had begun")
            return
        self._confirm(kind)
        if kind == "begin":
            self._begin(attempt, *values)
        elif attempt != self.attempt:
            if kind != "saving":
                self._find(f"attempt {attempt} makes steps without having begun")
        elif kind == "step":
            self._step(values[0])
        elif kind == "saving":
            self.saving = values[0]
        elif kind == "end":
            self.ended[attempt] = values[0]
            self.kept = max(self.kept, values[0]) if self.rank == 0 else self.kept

    def _confirm(self, kind: str) -> None:
        """A checkpoint is certain to exist once the same process has done something after it."""
        if self.saving is not None and kind in {"step", "end"}:
            self.kept = self.saving
        self.saving = None

    def _begin(self, attempt: int, total: int, counted: int) -> None:
        if attempt == self.attempt:
            self._find(f"attempt {attempt} began twice")
        if total != counted:
            self._find(f"attempt {attempt} loaded {total} steps, and Gavel counts {counted}")
        if total > self.reached:
            self._find(f"attempt {attempt} begins after step {total}, and only {self.reached} were made")
        if total < self.kept:
            self._find(f"attempt {attempt} begins after step {total}, behind the checkpoint at {self.kept}")
        self.repeated += max(self.reached - total, 0)
        self.attempt, self.at = attempt, total
        self.begun[attempt] = total

    def _step(self, number: int) -> None:
        if number != self.at + 1:
            self._find(f"attempt {self.attempt} makes step {number} after step {self.at}")
        self.at = number
        self.reached = max(self.reached, number)

    def _find(self, what: str) -> None:
        self.findings.append(f"job {self.job} rank {self.rank}: {what}")


@dataclass(frozen=True, slots=True)
class Ledgers:
    """All ledgers of a campaign."""

    ranks: dict[str, list[Rank]]

    @classmethod
    def of(cls, folder: Path) -> Ledgers:
        ranks: defaultdict[str, list[Rank]] = defaultdict(list)
        for path in sorted(folder.iterdir()):
            name, _, number = path.name.rpartition(".")
            rank = Rank(name, int(number))
            rank.read(path.read_text())
            ranks[name].append(rank)
        return cls(ranks)

    @property
    def repeated(self) -> int:
        return sum(ranks[0].repeated for ranks in self.ranks.values())

    @property
    def attempts(self) -> int:
        return sum(len(ranks[0].begun) for ranks in self.ranks.values())

    @property
    def steps(self) -> int:
        return sum(ranks[0].reached for ranks in self.ranks.values())

    def findings(self) -> Iterator[str]:
        """Violations visible from the ledgers alone."""
        for name, ranks in self.ranks.items():
            for rank in ranks:
                yield from rank.findings
            for other in ranks[1:]:
                yield from _differences(name, ranks[0], other)

    def completed(self, name: str, steps: int, workers: int) -> Iterator[str]:
        """What a completed job lacks."""
        ranks = self.ranks.get(name, [])
        if len(ranks) != workers:
            yield f"job {name} has completed with {workers} workers, and {len(ranks)} of them wrote a ledger"
        for rank in ranks:
            if rank.reached != steps:
                yield f"job {name} rank {rank.rank} has completed with {rank.reached} of {steps} steps"


def _differences(name: str, first: Rank, other: Rank) -> Iterator[str]:
    """Ranks of a gang begin and end each attempt at the same step."""
    for what, ours, theirs in (("begins", first.begun, other.begun), ("ends", first.ended, other.ended)):
        for attempt in ours.keys() & theirs.keys():
            if ours[attempt] != theirs[attempt]:
                yield (
                    f"job {name} attempt {attempt}: rank 0 {what} at step {ours[attempt]}, "
                    f"rank {other.rank} at {theirs[attempt]}"
                )


def wrong_ends(views: Iterable[JobView], ledgers: Ledgers, cancelled: set[str]) -> Iterator[str]:
    """Jobs that did not end as expected."""
    for view in views:
        state = view.state.value
        if state == "completed":
            yield from ledgers.completed(view.request.name, int(view.request.steps or 0), view.request.workers)
        elif state != "cancelled" or view.request.name not in cancelled:
            yield f"job {view.id} ({view.request.name}) is {state}: {view.reason}"


def reported_by_jobs(folder: Path) -> list[str]:
    """Violations that job processes found at startup."""
    path = folder / "violations"
    return path.read_text().splitlines() if path.exists() else []


def alarming_logs(folder: Path) -> Iterator[str]:
    """Lines that no log should contain."""
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if any(word in line for word in ALARMING):
                yield f"{path.name}, line {number + 1}: {' | '.join(lines[number : number + 30])[-1500:]}"


def orphans(cluster: Cluster) -> list[str]:
    """Processes that outlived the campaign."""
    return [
        f"process {found.pid} ({found.kind} of {found.agent or '-'}) is still running" for found in cluster.processes()
    ]


def damaged_journal(cluster: Cluster) -> Iterator[str]:
    """Run `gavel journal check`, and check that the facts replay to the saved state."""
    place = cluster.journal or str(cluster.folder / "state")
    command = [sys.executable, "-c", PLAIN, "journal", "check", place]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if checked.returncode:
        yield f"gavel journal check: {checked.stdout}{checked.stderr}"
    yield from _not_replayed(place, cluster.space_sharing)


def _not_replayed(place: str, space_sharing: bool) -> Iterator[str]:
    settings = ServeSettings(
        round_seconds=float(str(SERVE["round-seconds"])), mechanism=str(SERVE["mechanism"]), space_sharing=space_sharing
    )
    configurator = Configurator(settings.scheduling)
    with open_read_only(journal_url(place)) as journal:
        kept, recovered = journal.latest(), recover(journal, configurator)
        state, last = ClusterState(configurator), 0
        for entry in journal.facts():
            apply(state, entry.document)
            last = entry.number
    if kept is None or kept[0] != last:
        yield f"the last state was kept after fact {kept and kept[0]}, and the last fact is {last}"
        return
    if _plain(state) != kept[1]:
        yield f"the {last} facts of the journal do not replay to the state that was kept: {_difference(state, kept[1])}"
    if _plain(recovered) != kept[1]:
        yield f"recovery does not give the state that was kept: {_difference(recovered, kept[1])}"


def _plain(state: ClusterState) -> object:
    return json.loads(json.dumps(state.document()))


def _difference(state: ClusterState, kept: object) -> str:
    """The first place where two documents differ."""
    return next(_differing("state", _plain(state), kept), "in the order of keys")


def _differing(path: str, one: object, other: object) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing(f"{path}.{key}", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differing(f"{path}[{at}]", left, right)
    elif one != other:
        yield f"{path} is {str(one)[:200]} and {str(other)[:200]}"
