"""What was learned about templates without jobs: it moves from memory to the journal's table, and returns with a job.

Both moves are facts, and the fact that restores a template contains what was learned: recovery reads no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gavel.estimator.learned import LearnedTable
from gavel.scheduler.machine import Scheduler

SPARE_TEMPLATES = 1_000
"""Templates without jobs are forgotten once there are more than this plus twice the number of jobs."""

Learned = Mapping[str, Any]
"""For one template: measured rates, failures beside others, restart costs, and when it was forgotten."""


def knows(scheduler: Scheduler, template: str) -> bool:
    """Whether what was learned about a template is in memory, or nothing can be learned."""
    table = scheduler.table
    return not isinstance(table, LearnedTable) or table.knows(template) or template in scheduler.measured_restarts()


def forgettable(scheduler: Scheduler) -> tuple[str, ...]:
    """The templates to forget now; none while there are few."""
    table = scheduler.table
    if not isinstance(table, LearnedTable):
        return ()
    enough = SPARE_TEMPLATES + 2 * len(scheduler.roster)
    if max(table.measurements.size, len(scheduler.measured_restarts())) <= enough:
        return ()  # the usual case
    if max(table.spare, len(scheduler.measured_restarts())) <= enough:
        return ()
    used = scheduler.templates_in_use()
    learned = dict.fromkeys((*table.forgettable(), *scheduler.measured_restarts()))
    return tuple(template for template in learned if template not in used)


def forget(scheduler: Scheduler, templates: Sequence[str], time: float) -> dict[str, Learned]:
    """Remove what was learned about templates from memory; returns it by template."""
    table = scheduler.table
    rates = table.forget(templates) if isinstance(table, LearnedTable) else {}
    costs = scheduler.forget_templates(templates)
    return {
        template: {
            "template": template,
            "time": time,
            "restart_seconds": costs.get(template),
            **rates.get(template, {"estimates": [], "failures": []}),
        }
        for template in templates
    }


def recall(scheduler: Scheduler, learned: Learned) -> None:
    """Restore what was forgotten."""
    if isinstance(scheduler.table, LearnedTable):
        scheduler.table.recall(learned)
    scheduler.recall_template(learned["template"], learned["restart_seconds"])
