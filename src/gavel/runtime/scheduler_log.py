"""The scheduler's own log: facts as they are written, refusals of the transition table, and alarms.

It only observes: it changes nothing, and a failure here stops nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from gavel.core.codec import kind_of
from gavel.core.events import SolveFailed
from gavel.core.facts import AllocationAdopted, JobQueued, RoundPlanned, SolveAsked
from gavel.runtime.engine import Engine
from gavel.runtime.facts import Fact, document_of, jobs_of, server_of
from gavel.runtime.timeline import ROUTINE, sentence

logger = logging.getLogger(__name__)

QUIET = ROUTINE | {"attempt_closed", "restart_measured", "slept"}
"""Kinds that are logged only for debugging."""
WARNINGS = frozenset({"agent_lost", "solve_failed"})
SELF_REPORTED = frozenset({"journal", "logs"})
"""Alarms that are logged where they are raised."""


class BlackBox:
    """Logs what an engine has written; one of its witnesses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked: dict[int, float] = {}
        """When the policy was asked, by the number of the solve."""
        self._alarms: dict[str, str] = {}

    def __call__(self, facts: Sequence[Fact]) -> None:
        try:
            self._log(facts)
            self._log_refusals()
            self._log_alarms()
        except Exception:  # the scheduler must not stop because of its log
            logger.exception("a bug in the scheduler's log; the scheduler continues")

    def _log(self, facts: Sequence[Fact]) -> None:
        first = self._engine.witnessed - len(facts) + 1
        queued = [fact for fact in facts if isinstance(fact, JobQueued)]
        if queued:
            self._log_submission(queued)
        for number, fact in enumerate(facts, start=first):
            if not isinstance(fact, JobQueued):
                self._log_fact(number, fact)

    def _log_submission(self, queued: Sequence[JobQueued]) -> None:
        ids = [fact.job.id for fact in queued]
        text = f"job {ids[0]} was submitted" if len(ids) == 1 else f"{len(ids):,} jobs submitted: {ids[0]} to {ids[-1]}"
        fields = {"kind": "job_queued", "count": len(ids)} | ({"job": ids[0]} if len(ids) == 1 else {})
        logger.info(text, extra=fields)

    def _log_fact(self, number: int, fact: Fact) -> None:
        kind = kind_of(type(fact))
        level = logging.WARNING if kind in WARNINGS else logging.DEBUG if kind in QUIET else logging.INFO
        fields: dict[str, Any] = {"fact": number, "kind": kind}
        seconds = self._solve_seconds(fact)
        if not logger.isEnabledFor(level):
            return
        if isinstance(fact, RoundPlanned):
            text, more = self._round(fact)
            logger.log(level, text, extra=fields | more)
            return
        jobs, server = jobs_of(fact), server_of(fact)
        fields |= {"job": jobs[0]} if len(jobs) == 1 else {"jobs": list(jobs)} if jobs else {}
        fields |= {"server": server} if server else {}
        text = sentence(kind, document_of(fact)["fact"])
        if seconds is not None:
            fields["seconds"] = round(seconds, 6)
            text = f"{text}, after {seconds:.3f} s"
        logger.log(level, text, extra=fields)

    def _solve_seconds(self, fact: Fact) -> float | None:
        """How long the policy took, if this fact is its answer."""
        if isinstance(fact, SolveAsked):
            self._asked = {fact.number: fact.time}  # only the last solve may still be answered
        if isinstance(fact, AllocationAdopted | SolveFailed) and fact.number in self._asked:
            return fact.time - self._asked.pop(fact.number)
        return None

    def _round(self, fact: RoundPlanned) -> tuple[str, dict[str, Any]]:
        scheduler = self._engine.scheduler
        counts = {
            "started": sum(len(run.jobs) for run in fact.started),
            "moved": sum(len(run.jobs) for run in fact.moved),
            "stopped": sum(len(run.jobs) for run in fact.stopped),
            "running": sum(len(run.members) for run in scheduler.placed),
        }
        counts["waiting"] = len(scheduler.roster) - counts["running"]
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        which = "during the round" if fact.mid_round else "a round begins"
        return f"{which}: {told}", {"round": fact.number, "mid_round": fact.mid_round, **counts}

    def _log_refusals(self) -> None:
        refusals = self._engine.state.jobs.refusals
        for refusal in refusals:
            fields = {"kind": "refused", "job": refusal.job, "turn": str(refusal.change)}
            logger.error("refused, please report it: %s", refusal, extra=fields)
        refusals.clear()

    def _log_alarms(self) -> None:
        alarms = {about: text for about, text in self._engine.alarms.items() if about not in SELF_REPORTED}
        for about in alarms.keys() - self._alarms.keys():
            logger.error("alarm: %s", alarms[about], extra={"kind": "alarm", "about": about})
        for about in self._alarms.keys() - alarms.keys():
            logger.warning("alarm cleared: %s", self._alarms[about], extra={"kind": "alarm_over", "about": about})
        self._alarms = alarms
