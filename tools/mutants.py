"""The table of `tools/mutate.py`: decisive lines, each with a change that the named tests must notice.

`old` must occur exactly once in its file; a test checks this, so that the table follows the code.
"""

# ruff: noqa: E501, ISC004 - code is quoted as it is

from __future__ import annotations

from dataclasses import dataclass

RUNTIME, SCHEDULER, JOURNAL, AGENT = (
    "src/gavel/runtime",
    "src/gavel/scheduler",
    "src/gavel/journal",
    "src/gavel/runtime/agent",
)

TIME_LIMITS = "tests/runtime/test_time_limits.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change to one line or two, and the tests that should fail with it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()
    """Further changes to the same file, if two lines keep one promise."""

    def changes(self) -> list[tuple[str, str]]:
        return [(self.old, self.new), *self.also]

    def applied(self, code: str) -> str:
        """The code with all changes."""
        for old, new in self.changes():
            code = code.replace(old, new)
        return code


def _in(
    folder: str, module: str, *tests: str, **mutants: tuple[str, str] | tuple[str, str, tuple[str, ...]]
) -> list[Mutant]:
    """Mutants of one module, noticed by the same tests unless they name their own."""
    made = []
    for name, (old, new, *own) in mutants.items():
        title = f"{module}: {name.replace('_', ' ')}"
        made.append(Mutant(title, f"{folder}/{module}.py", old, new, own[0] if own else tests))
    return made


def _scenario(*names: str) -> tuple[str, ...]:
    """Small scenarios without further crashes."""
    test = "tests/runtime/test_safety.py::test_recovery_from_any_prefix_gives_the_state_that_existed_then"
    return tuple(f"{test}[{name}]" for name in names)


def _crashes(*names: str) -> tuple[str, ...]:
    """The same, once for each operation at which the scheduler may end."""
    test = "tests/runtime/test_safety.py::test_everything_stays_safe_and_completes_wherever_the_scheduler_ends"
    return tuple(f"{test}[{name}]" for name in names)


PROMISES = "tests/runtime/test_promises.py"
DRIVER = "tests/runtime/test_safety_driver.py"
CLOCK = "tests/runtime/test_clock.py"
JOBS = "tests/runtime/test_jobs.py"
ROUND = "tests/runtime/test_during_a_round.py"
MEASURES = "tests/runtime/test_fleet_measures.py"
MACHINE = "tests/scheduler/test_machine.py"
STATE = "tests/scheduler/test_state.py"
ORDER = "tests/scheduler/test_order_and_places.py"

ENGINE_MUTANTS = _in(
    RUNTIME,
    "engine",
    PROMISES,
    acknowledge_before_journaling_all_at_once=(
        "            self.write(batch)\n            self.perform(batch)",
        "            self.perform(batch)\n            self.write(batch)",
    ),
    clients_are_told_while_deciding=(
        "                batch.told.append((each.done, error))",
        "                each.done(error)",
        (PROMISES, DRIVER),
    ),
    time_goes_back=(
        "now, batch = max(self.clock(), self.state.time), DecisionBatch()",
        "now, batch = self.clock(), DecisionBatch()",
    ),
    events_of_one_instant_in_reverse=(
        "        for each in posted:\n            error",
        "        for each in reversed(posted):\n            error",
    ),
    commands_of_one_batch_in_reverse=(
        "        for number, (fact, commands) in enumerate(batch.commands, start=1):",
        "        for number, (fact, commands) in enumerate(reversed(batch.commands), start=1):",
    ),
    steps_are_counted_after_the_round=(
        "            self.executor.report()\n        self.post(RoundDue(now))",
        "            self.post(RoundDue(now))\n            self.executor.report()\n        else:\n            self.post(RoundDue(now))",
        (ROUND, PROMISES),
    ),
    a_job_that_ended_keeps_its_processes=(
        "            self.executor.close(fact.job, Cause(fact.code, fact.reason) if fact.saves else None)",
        "            pass",
    ),
    a_question_is_not_asked_again_after_a_restart=(
        "        if state.scheduler.unanswered is not None:\n            host.ask(state.scheduler.unanswered)",
        "",
        (PROMISES,),
    ),
    no_round_is_due_after_a_restart=(
        "        if state.scheduler.wake is not None:\n            host.wake(state.scheduler.wake)",
        "",
        (ROUND, PROMISES),
    ),
)

STATE_MUTANTS = _in(
    RUNTIME,
    "state",
    PROMISES,
    a_repeated_submission_takes_effect_twice=(
        "        if event.key in self.jobs.keys:\n            return\n",
        "",
    ),
    an_end_is_taken_in_twice=(
        "        if not self.attempts.has(event.job, event.attempt):\n            return  # heard before\n",
        "",
    ),
    a_lost_attempt_costs_a_retry=(
        "core.JobFailed(event.time, event.job, event.reason, counts=False))\n            case AttemptOutcome.BLOCKED",
        "core.JobFailed(event.time, event.job, event.reason))\n            case AttemptOutcome.BLOCKED",
    ),
    retries_never_end=("        if event.hopeless or left <= 0:", "        if event.hopeless:"),
    a_hopeless_job_is_tried_again=("        if event.hopeless or left <= 0:", "        if left <= 0:"),
    a_shorter_round_shortens_what_was_promised=(
        "            self.renewed_until = max(self.renewed_until, fact.until)",
        "            self.renewed_until = fact.until",
        (PROMISES, *_scenario("clock an hour forward")),
    ),
    leases_are_not_moved_by_a_start=(
        "        self.renewed_until += asleep\n",
        "",
        (PROMISES, *_scenario("clock an hour forward", "clock an hour back")),
    ),
    fences_are_not_moved_by_a_start=("        self.agents.postpone(asleep)", "        pass"),
    fences_of_a_lost_agent_are_not_recorded=(
        "AgentLost(event.time, event.agent, event.reason, event.fences, record.name)",
        "AgentLost(event.time, event.agent, event.reason, {}, record.name)",
    ),
    kept_states_forget_open_attempts=(
        '            "attempts": self.attempts.document(),',
        '            "attempts": [],',
        (PROMISES, *_scenario("kept states in between")),
    ),
    kept_states_forget_leases=(
        '            "renewed_until": self.renewed_until,',
        '            "renewed_until": 0.0,',
        (PROMISES, *_scenario("kept states in between")),
    ),
    a_lost_server_still_counts=(
        '        self._withdraw(event.time, record.servers, Cause("lost", event.reason))',
        "",
        (PROMISES, *_scenario("agent switched off")),
    ),
    a_namesake_is_not_declared_lost=(
        "            if not rival.lost:\n",
        "            if False:\n",
        (PROMISES, *_scenario("another machine with the name of a hung one")),
    ),
    progress_counts_for_finished_jobs=(
        "if record is not None and not record.finished and total != record.steps_done:",
        "if record is not None and total != record.steps_done:",
    ),
)

JOBS_MUTANTS = _in(
    RUNTIME,
    "jobs",
    JOBS,
    a_finished_job_may_end_again=(
        "TRANSITIONS.get((record.state, change))",
        "TRANSITIONS.get((record.state, change), _ENDS.get(change))",
    ),
    a_finished_job_may_run_again=(
        "    (JobState.RUNNING, JobChange.MOVED): JobState.RUNNING,",
        "    (JobState.RUNNING, JobChange.MOVED): JobState.RUNNING,\n    (JobState.COMPLETED, JobChange.LAUNCHED): JobState.RUNNING,",
    ),
    ids_are_given_again=("max(self.next_number, int(job) + 1)", "max(self.next_number, int(job))"),
    ids_are_given_again_after_a_restart=(
        'jobs.next_number = document["next_number"]',
        "jobs.next_number = 1",
        (JOBS, PROMISES),
    ),
    calls_are_forgotten_after_a_restart=(
        'jobs.keys = {key: list(ids) for key, ids in document["keys"].items()}',
        "jobs.keys = {}",
        (JOBS, PROMISES),
    ),
    failures_do_not_count=(
        "replace(record, failures=record.failures + fact.counts)",
        "replace(record, failures=record.failures)",
    ),
    a_refused_fact_changes_the_job=(
        "            self.refusals.append(Refusal(job, change, None if record is None else record.state))\n            return None",
        "            return record",
    ),
    the_attempt_number_is_not_recorded=("                    attempts=launch.attempt,\n", ""),
)

AGENTS_MUTANTS = _in(
    RUNTIME,
    "agents",
    PROMISES,
    a_return_lifts_the_recorded_fence=(
        "        # scheduler restarted before those processes end must not forget them.\n        self._drop_fences(fact.time)",
        "        self.fences = {key: until for key, until in self.fences.items() if key[1] != fact.agent}",
        (PROMISES, *_scenario("hung agent that comes back to a scheduler about to restart")),
    ),
    fences_are_dropped_while_they_hold=("if until > time}", "if until > time + 60.0}"),
    fences_are_not_kept=(
        "        self.fences |= {(job, fact.agent): until for job, until in fact.fences.items()}",
        "",
    ),
    a_return_ends_a_drain=('drained_by=before.drained_by if before else "",', 'drained_by="",'),
    a_drained_agent_takes_work=(
        "return () if self.lost or self.draining else self.servers",
        "return () if self.lost else self.servers",
    ),
    a_lost_agent_takes_work=(
        "return () if self.lost or self.draining else self.servers",
        "return () if self.draining else self.servers",
        (PROMISES,),
    ),
    kept_states_forget_fences=(
        'agents.fences = {(job, agent): until for job, agent, until in document["fences"]}',
        "agents.fences = {}",
    ),
)

OPEN_MUTANTS = _in(
    RUNTIME,
    "open_attempts",
    PROMISES,
    moved_attempts_are_not_open=("for run in (*fact.moved, *fact.started):", "for run in fact.started:"),
    one_end_closes_all_attempts=("attempts.pop(fact.attempt, None)", "attempts.clear()"),
    the_last_attempt_comes_first=("for number in sorted(attempts)]", "for number in sorted(attempts, reverse=True)]"),
    ends_close_nothing=(
        "                attempts.pop(fact.attempt, None)\n                if not attempts:",
        "                if not attempts:",
    ),
)

ENVIRONMENTS = "tests/runtime/agent/test_environments.py"
START_MUTANTS = [
    *_in(
        "src/gavel/client",
        "guard",
        "tests/client/test_guard.py",
        what_is_beyond_reach_survives_the_guard=(
            "        if self._last:\n            self._run_last(account)\n",
            "",
        ),
    ),
    *_in(
        f"{RUNTIME}/agent",
        "processes",
        ENVIRONMENTS,
        a_container_outlives_its_killed_guard=("                self._removal.run()", "                pass"),
    ),
    *_in(
        f"{RUNTIME}/agent",
        "state",
        ENVIRONMENTS,
        a_container_outlives_its_agent=("        Removal(**mark.removal).run()", "        pass"),
    ),
    *_in(
        f"{RUNTIME}/agent",
        "task",
        "tests/runtime/agent/test_agent_tasks.py",
        the_grace_of_the_cluster_for_all=(
            "return self.graces.checkpoint_seconds if self.grace_seconds is None else self.grace_seconds",
            "return self.graces.checkpoint_seconds",
        ),
        no_grace_after_sigterm=(
            "                guarded.ask()\n                waits = True\n",
            "                pass\n",
        ),
    ),
    *_in(
        f"{RUNTIME}/agent",
        "inherited",
        "tests/runtime/agent/test_agent_tasks.py",
        the_rank_of_the_agent_is_inherited=(" or name in DENIED or name in RANKS)", " or name in DENIED)"),
    ),
    *_in(
        "src/gavel/client",
        "job_environment",
        "tests/client/test_job_environment.py",
        ranks_of_one_server_train_by_themselves=("    _check_world(environment, names)\n", ""),
    ),
    *_in(
        RUNTIME,
        "attempts",
        PROMISES,
        every_accelerator_of_a_process_must_end=(
            "return len(self.ended) == len(self.all_ranks)",
            "return len(self.ended) == self.ranks",
        ),
    ),
]
CONTAINER_MUTANTS = _in(
    f"{RUNTIME}/agent",
    "container_runtimes",
    ENVIRONMENTS,
    values_on_the_command_line=(
        '*(f"--env={name}" for name in passed)',
        '*(f"--env={name}={value}" for name, value in passed.items())',
    ),
    a_job_steers_the_runtime=(
        "if name not in steers and not",
        "if not",
    ),
    a_path_becomes_an_option_of_a_mount=(
        "if any(character in path for character in _UNMOUNTABLE):",
        "if False:",
    ),
    containers_are_not_removed=("(*removal, what.name))", "())"),
)

FLEET_MUTANTS = _in(
    RUNTIME,
    "fleet",
    PROMISES,
    fence_without_the_ending_grace=(
        "self.fences[attempt.job, agent] = attempt.lease_until + self._ending_seconds(attempt.job)",
        "self.fences[attempt.job, agent] = attempt.lease_until",
    ),
    fence_with_the_grace_of_the_cluster=(
        "self.fences[attempt.job, agent] = attempt.lease_until + self._ending_seconds(attempt.job)",
        "self.fences[attempt.job, agent] = attempt.lease_until + self.settings.ending_seconds",
    ),
    fence_of_a_stray_with_the_grace_of_the_cluster=(
        "self._lease_seconds(self.renewed_until) + self._ending_seconds(job)",
        "self._lease_seconds(self.renewed_until) + self.settings.ending_seconds",
    ),
    start_at_an_agent_that_cannot_do_it=(
        "        if told := self._unfitness(launch.job, agent_of.values()):",
        "        if told := '':",
    ),
    start_at_an_agent_that_came_back_and_cannot_do_it=(
        "        if told := self._unfitness(launch.job, [part.agent]):",
        "        if told := '':",
    ),
    secrets_for_an_agent_without_tls=(
        "        if record.request.secrets and open_at:",
        "        if False:",
    ),
    relaunch_while_an_attempt_runs=(
        "if job in self.attempts or job in self.unsettled or self.strays.get(job):",
        "if job in self.unsettled or self.strays.get(job):",
    ),
    relaunch_before_the_end_is_written=(
        "if job in self.attempts or job in self.unsettled or self.strays.get(job):",
        "if job in self.attempts or self.strays.get(job):",
        (MEASURES, PROMISES),
    ),
    relaunch_beside_a_stray=(
        "if job in self.attempts or job in self.unsettled or self.strays.get(job):",
        "if job in self.attempts or job in self.unsettled:",
    ),
    relaunch_in_spite_of_a_fence=(
        "        return all(fenced != job for fenced, _ in self.fences)  # few: only those of lost agents",
        "        return True",
    ),
    relaunch_before_earlier_attempts_are_known_after_a_restart=(
        "                self.waiting[job] = order\n            else:",
        "                self._begin(order)\n            else:",
    ),
    the_wrong_attempt_continues_after_a_restart=(
        "self._resume(first, stopping=first.launch.attempt != wanted)",
        "self._resume(first, stopping=False)",
    ),
    an_end_is_acknowledged_before_it_is_written=(
        "        attempt.acknowledge.append(acknowledge)",
        "        acknowledge()",
    ),
    an_end_heard_twice_is_acknowledged_before_it_is_written=(
        "        if status.job in self.unsettled:\n            late",
        "        if False:\n            late",
    ),
    leases_of_a_late_launch_are_those_of_its_round=(
        "self._lease_seconds(max(launch.until, self.renewed_until))",
        "self._lease_seconds(launch.until)",
        (ROUND,),
    ),
    fences_do_not_know_of_leases_at_a_return=(
        "                attempt.lease_until = max(attempt.lease_until, self.clock() + seconds)",
        "                pass",
        (PROMISES, *_scenario("agent that returns when its round is late")),
    ),
    a_later_scheduler_is_ignored=("        if hello.term > self.identity.term:", "        if False:"),
    jobs_of_another_cluster_are_taken_over=(
        '        if hello.tasks and hello.cluster not in ("", self.identity.cluster):',
        "        if False:",
    ),
    a_namesake_takes_over_without_a_fence=(
        "        return [] if agent is None or agent == hello.agent else [self.members[agent]]",
        "        return []",
    ),
    strays_are_not_waited_for=(
        "        self.strays.setdefault(status.job, set()).add((member.agent, status.attempt, status.rank))",
        "",
    ),
    strays_at_a_lost_agent_are_not_fenced=(
        "            if any(holder == agent for holder, _, _ in strays):",
        "            if False:",
    ),
    fences_are_lifted_early=(
        "self.fences[job, agent] <= now)",
        "self.fences[job, agent] <= now + 1.0)",
    ),
    fences_are_lifted_before_it_is_known_what_runs=(
        "        self._sort_out(self.members[hello.agent], hello.tasks)\n        # Only now do we know what still runs there.\n"
        "        self._lift_fences(lambda _, agent: agent == hello.agent)",
        "        self._lift_fences(lambda _, agent: agent == hello.agent)\n"
        "        self._sort_out(self.members[hello.agent], hello.tasks)",
    ),
    fences_are_forgotten_by_a_restart=("        self.fences.update(fences)", "        pass"),
    a_gang_continues_without_a_rank_that_crashed=(
        "        if attempt.crash is not None and not attempt.stopping:",
        "        if False:",
    ),
    a_standstill_is_held_against_agents=("            member.heard_at += seconds", "            pass", (CLOCK,)),
    processes_that_should_not_run_are_not_stopped=(
        "            elif (agent, status.attempt, status.rank) not in self.strays.get(status.job, set()):\n"
        "                self._stray(member, status)",
        "            else:\n                pass",
    ),
    an_older_attempt_counts_as_the_present_one=(
        "            if attempt and part and attempt.number == status.attempt:",
        "            if attempt and part:",
    ),
    an_end_of_an_older_attempt_ends_the_present_one=(
        "        if attempt is None or part is None or attempt.number != status.attempt:\n"
        "            self._forget_strays(status.job",
        "        if attempt is None or part is None:\n            self._forget_strays(status.job",
    ),
    a_finished_job_may_save_instead_of_ending_at_once=("at_once=not saves", "at_once=False"),
    a_job_that_saves_at_its_limit_is_ended_at_once_when_its_agent_returns=(
        "saves = record is not None and may_save(record)",
        "saves = record is not None and not record.finished",
    ),
)

ATTEMPTS_MUTANTS = _in(
    RUNTIME,
    "attempts",
    PROMISES,
    steps_that_no_checkpoint_holds_are_kept=(
        "return self.saved_steps if self.steps is not None and not self.done else self.steps",
        "return self.steps",
    ),
    an_attempt_is_over_with_its_first_part=(
        "return all(part.over for part in self.parts)",
        "return any(part.over for part in self.parts)",
    ),
    the_last_rank_decides_whether_it_is_done=(
        "self.done = self.done or message.ending is Ending.DONE",
        "self.done = message.ending is Ending.DONE",
    ),
    a_crash_of_one_rank_is_no_crash=(
        "        if self.crash is not None:\n            return self.crashed, self.crash\n        if self.done:",
        "        if self.done:",
    ),
    ranks_of_parts_overlap=("        rank += count", "        rank += 1"),
)

OTHER_RUNTIME_MUTANTS = [
    *_in(
        RUNTIME,
        "driver",
        DRIVER,
        acknowledge_before_journaling=(
            "                if batch.facts or batch.beside:\n"
            "                    await self._written(lambda: self.engine.write(batch))  # noqa: B023 - awaited here\n"
            "                await in_turns(self.engine.performing(batch))",
            "                await in_turns(self.engine.performing(batch))\n"
            "                if batch.facts or batch.beside:\n"
            "                    await self._written(lambda: self.engine.write(batch))  # noqa: B023 - awaited here",
        ),
        a_failed_write_is_taken_for_done=(
            "                await asyncio.sleep(pause)\n",
            "                return None  # type: ignore[return-value]\n",
        ),
        a_standstill_is_not_noticed=("                self.executor.excuse(late)", "                pass", (CLOCK,)),
    ),
    *_in(
        RUNTIME,
        "watching",
        "tests/runtime/test_service_promises.py",
        a_shared_answer_loses_what_changed_since=("            changed.update(answer.changed)\n", ""),
    ),
    *_in(
        RUNTIME,
        "recovery",
        *_scenario("kept states in between"),
        a_fact_is_skipped_after_a_kept_state=(
            "journal.facts(after=number, until=until)",
            "journal.facts(after=number + bool(number), until=until)",
        ),
        facts_before_the_kept_state_are_applied_again=(
            "journal.facts(after=number, until=until)",
            "journal.facts(after=max(number - 1, 0), until=until)",
        ),
        a_state_from_the_future_is_used=("kept = journal.latest(at=until)", "kept = journal.latest()"),
    ),
    *_in(
        RUNTIME,
        "state_keeper",
        *_scenario("kept states in between"),
        facts_are_taken_in_twice=(
            "            self._number = entry.number\n",
            "",
            (PROMISES, *_scenario("kept states in between")),
        ),
        finished_jobs_are_dropped=("finished_jobs(kept.finished), kept", "[], kept", (PROMISES,)),
    ),
    *_in(
        RUNTIME,
        "submission_service",
        "tests/runtime/test_service_promises.py",
        a_submission_is_acknowledged_before_it_is_written=(
            "                await asyncio.shield(\n                    self._driver.post(submitted, beside=lambda facts: [*keeping(facts), *audited(facts)])\n                )",
            "                self._posting = asyncio.ensure_future(\n                    self._driver.post(submitted, beside=lambda facts: [*keeping(facts), *audited(facts)])\n                )",
        ),
        what_was_learned_is_not_looked_up=("await self._driver.recalled(jobs), by", "{}, by"),
    ),
    *_in(
        RUNTIME,
        "job_verbs_service",
        "tests/runtime/test_service_promises.py",
        a_cancel_is_acknowledged_before_it_is_written=(
            '            await self._driver.post(*cancelled, beside=self._audited("Cancel"))',
            "            cancels = list(cancelled)\n"
            '            self._posting = asyncio.ensure_future(self._driver.post(*cancels, beside=self._audited("Cancel")))\n'
            "            await asyncio.sleep(0)",
        ),
    ),
    *_in(
        RUNTIME,
        "service",
        "tests/runtime/test_service_promises.py",
        a_removal_is_acknowledged_before_it_is_written=(
            "            await self._driver.post(asked, beside",
            "            self._engine.post(asked, None, beside",
        ),
        a_connection_that_was_replaced_is_listened_to=(
            "member is not None and member.link is stream:",
            "member is not None:",
        ),
    ),
    *_in(
        RUNTIME,
        "clock",
        CLOCK,
        a_restart_goes_back_in_time=("max(wall(), not_before)", "wall()"),
        a_step_of_the_clock_is_followed=("return self._monotonic() + self._offset", "return time.time()"),
    ),
    *_in(
        RUNTIME,
        "configuration",
        PROMISES,
        the_past_is_read_with_present_settings=(
            'document["scheduler"], learned, self._mechanism(wanted), rounds(wanted), entities=wanted.entities',
            'document["scheduler"], learned, self._mechanism(wanted), rounds(self._present), entities=wanted.entities',
        ),
        settings_are_left_to_the_defaults_of_the_version=(
            "return {name: to_plain(getattr(settings, name)) for name in Scheduling.__slots__}",
            'return {name: to_plain(getattr(settings, name)) for name in Scheduling.__slots__ if name != "round_seconds"}',
        ),
    ),
]

SCHEDULER_MUTANTS = [
    *_in(
        SCHEDULER,
        "machine",
        ORDER,
        MACHINE,
        a_late_answer_to_an_earlier_question_is_adopted=(
            "if fact.number != self._solve_number or self.unanswered is None:",
            "if self.unanswered is None:",
            (ORDER, MACHINE),
        ),
        a_drained_server_keeps_its_jobs=(
            "        for name in self.occupancy.closed():\n            self._remove_server(time, name, DRAINED)\n",
            "        pass\n",
            ("tests/scheduler/test_changes_during_a_solve.py", *_scenario("drain")),
        ),
    ),
    *_in(
        SCHEDULER,
        "evolving",
        ORDER,
        MACHINE,
        a_job_that_leaves_asks_for_no_new_allocation=(
            "        self.mechanism.leave(slot)\n        self._changed = True",
            "        self.mechanism.leave(slot)",
        ),
        a_pause_is_released_one_tick_late=(
            "for slot, until in self._held.items() if until <= time]",
            "for slot, until in self._held.items() if until < time]",
        ),
        jobs_of_a_lost_server_stay_there=(
            "        for job in fact.stopped:\n            self._vacate(fact.time, job)\n",
            "",
        ),
        a_job_that_pauses_is_planned=(
            "        held = [*self._held, *self._on_hold]\n",
            "        held = [*self._on_hold]\n",
        ),
        a_job_on_hold_is_planned=(
            "        held = [*self._held, *self._on_hold]\n",
            "        held = [*self._held]\n",
        ),
    ),
    *_in(
        SCHEDULER,
        "evolving",
        "tests/scheduler/test_edits.py",
        an_older_answer_counts_for_an_edited_job=(
            "{slot: asked for slot, asked in self._reclassed.items() if asked >= fact.number}",
            "{slot: asked for slot, asked in self._reclassed.items() if asked > fact.number}",
        ),
        the_mechanism_takes_an_edited_job_for_what_it_was=(
            "        self.mechanism.leave(slot)\n        self._reclassed[slot] = self._solve_number",
            "        self._reclassed[slot] = self._solve_number",
        ),
        the_rates_of_an_edited_job_stay=(
            "        self.roster.set_rates(np.array([slot]), self.beliefs.rates[number][:, Locality.SERVER])\n",
            "",
        ),
        a_settled_plan_outlives_an_edit=(
            "        self._edits += 1\n",
            "",
        ),
    ),
    *_in(
        SCHEDULER,
        "machine",
        "tests/scheduler/test_edits.py",
        a_job_stays_on_a_type_that_it_may_not_use=(
            "        if leaves:\n            self._note(JobsStopped(event.time, (job,), EDITED))\n",
            "",
        ),
    ),
    *_in(
        RUNTIME,
        "state",
        TIME_LIMITS,
        a_job_is_stopped_before_its_time_limit=(
            "        if left <= 0:\n            reason",
            "        if left <= 1:\n            reason",
        ),
        time_without_a_scheduler_counts_as_running=(
            "        if lost > 0.0:\n",
            "        if False:\n",
        ),
        a_job_that_is_silent_fails_too_early=(
            "        if patience is not None and event.time - event.since >= patience:",
            "        if patience is not None:",
            (f"{TIME_LIMITS}::test_a_late_report_of_silence_ends_nothing",),
        ),
    ),
    *_in(
        RUNTIME,
        "fleet",
        TIME_LIMITS,
        a_job_at_its_time_limit_is_killed=(
            "at_once=cause is None, reason=",
            "at_once=True, reason=",
        ),
        an_agent_that_returns_finds_its_jobs_idle=(
            "                attempt.active_at = now  # what it did meanwhile was not heard",
            "                pass",
        ),
        a_job_is_idle_because_its_agent_is_away=(
            "if attempt.active_at is None or attempt.stopping or not self._reaches(attempt):",
            "if attempt.active_at is None or attempt.stopping:",
        ),
    ),
    *_in(
        RUNTIME,
        "preferences",
        "tests/runtime/test_preferences.py",
        a_job_waits_for_its_preferred_type_for_ever=(
            "(not there or rounds >= PREFERENCE_ROUNDS)",
            "not there",
        ),
        a_job_waits_for_a_type_that_is_nowhere=(
            "(not there or rounds >= PREFERENCE_ROUNDS)",
            "rounds >= PREFERENCE_ROUNDS",
        ),
        rounds_on_hold_count_as_waiting=(
            "waits = records[job].state is not JobState.RUNNING and able(job)",
            "waits = records[job].state is not JobState.RUNNING",
        ),
        a_running_job_is_stopped_for_its_preference=(
            "        if not request.prefer or kept or elsewhere:",
            "        if not request.prefer or kept:",
        ),
        a_preference_is_lost_when_its_type_is_away=(
            "elif cause == ABSENT.code and there and",
            "elif False and there and",
        ),
    ),
    *_in(
        RUNTIME,
        "job_edits",
        "tests/runtime/test_job_edits.py",
        a_finished_job_is_edited=(
            '    if record.finished:\n        raise InputError(f"job {job} has {_ended',
            '    if False:\n        raise InputError(f"job {job} has {_ended',
        ),
        a_job_has_fewer_steps_than_it_made=(
            "    if steps is not None and steps < done:",
            "    if steps is not None and steps < 0:",
        ),
        a_running_job_keeps_its_old_number_of_steps=(
            "if _steps_differ(each, records) and cluster.runs(each.job.id)]",
            "if False]",
        ),
    ),
    *_in(
        SCHEDULER,
        "occupancy",
        ORDER,
        MACHINE,
        accelerators_of_a_pair_are_free_when_one_leaves=(
            "            self._seat(Run(rest, run.type_index, run.workers), where)",
            "            self._seat(Run(rest, run.type_index, run.workers), where)\n"
            "            self.server_pools[run.type_index].give_back(where)",
        ),
        a_stopped_run_keeps_its_accelerators=(
            "        self.server_pools[run.type_index].give_back(self._clear(run))",
            "        self._clear(run)",
        ),
        who_runs_is_forgotten_by_slot_when_restored=(
            "        self.run_of = {slot: run for run in self.placed for slot in run.members}\n",
            "        self.run_of: dict[int, Run] = {}\n",
            (ORDER, STATE, MACHINE),
        ),
    ),
    *_in(
        SCHEDULER,
        "plan_facts",
        ORDER,
        attempt_numbers_are_used_again=(
            "int(roster.restarts[slot] + roster.started[slot]) + 1",
            "int(roster.restarts[slot]) + 1",
        ),
    ),
    *_in(
        SCHEDULER,
        "seating",
        MACHINE,
        a_gang_that_cannot_be_gathered_gives_its_places_away=(
            "            pool.give_back(gathered)\n            pool.take_exactly(where)",
            "            pool.give_back(gathered)",
            (ORDER, MACHINE),
        ),
        runs_that_stop_are_moved=(
            "other.workers < run.workers and other not in self._stopped:",
            "other.workers < run.workers:",
            (ORDER, MACHINE),
        ),
        room_is_made_without_giving_places_back=(
            "            pool.give_back(self._where(other))\n",
            "",
            (ORDER,),
        ),
    ),
    *_in(
        SCHEDULER,
        "placement",
        MACHINE,
        emptiest_server_first=(
            "for count in range(workers, max(self._with_free, default=0) + 1):",
            "for count in range(max(self._with_free, default=0), workers - 1, -1):",
            (ORDER, MACHINE),
        ),
        trying_changes_the_pool=("pool._free = dict(self._free)", "pool._free = self._free"),
        closed_servers_take_work=(
            "            free = self._free[name]\n            self._servers_with(free).pop(name)\n            self._closed.add(name)",
            "            free = self._free[name]\n            self._closed.add(name)",
            (ORDER,),
        ),
        a_claim_takes_nothing=("self._set(name, self._free[name] - workers)", "self._set(name, self._free[name])"),
        restored_pools_are_empty=(
            "            pool.free += count * len(names)",
            "            pool.free += len(names)",
            (ORDER,),
        ),
    ),
    *_in(
        SCHEDULER,
        "state",
        ORDER,
        STATE,
        MACHINE,
        pauses_are_forgotten=("= dict(state.held), set(state.on_hold)", "= {}, set(state.on_hold)"),
        holds_are_forgotten=("= dict(state.held), set(state.on_hold)", "= dict(state.held), set()"),
        questions_are_forgotten=(
            "scheduler.allocation, scheduler.unanswered = state.allocation, state.unanswered",
            "scheduler.allocation, scheduler.unanswered = state.allocation, None",
        ),
        costs_of_restarts_are_forgotten=(
            "beliefs.restarts, beliefs.restarts_in_use = dict(state.restarts), dict(state.restarts_in_use)",
            "beliefs.restarts_in_use = dict(state.restarts_in_use)",
        ),
    ),
]

APPEND, ERRORS, LEADER, DAMAGE = (
    f"tests/journal/test_{name}.py" for name in ("append_and_read", "errors", "leader", "corruption")
)
SQLITE = ("-k", "not postgres")
JOURNAL_MUTANTS = [
    *_in(
        JOURNAL,
        "store",
        ERRORS,
        LEADER,
        *SQLITE,
        an_old_leader_may_write=(
            "ours = (LEADER.c.term == self.term) & (LEADER.c.last == before.number)",
            "ours = LEADER.c.last == before.number",
        ),
        an_append_in_doubt_is_not_checked=("            self._in_doubt = True\n", ""),
        facts_of_another_leader_count_as_ours=(
            "        if found.term != self.term:\n            raise self._writer.lost(connection)\n",
            "",
        ),
        the_head_stays_behind=("        self._head = rows.after\n", "", (APPEND, *SQLITE)),
        a_mark_of_another_journal_is_ignored=(
            "    if mark is None or (mark[0] == cluster and mark[1] <= last) or (cluster is None and not mark[1]):",
            "    if True:",
            (DAMAGE, *SQLITE),
        ),
    ),
    *_in(
        JOURNAL,
        "leader",
        LEADER,
        *SQLITE,
        an_old_leader_may_keep_states=(
            "LEADER.update().where(LEADER.c.term == self.term).values(term=self.term)",
            "LEADER.update().values(term=self.term)",
        ),
        two_schedulers_at_once=(
            "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            "            pass",
        ),
        terms_do_not_rise=("values(term=LEADER.c.term + 1, holder", "values(term=LEADER.c.term, holder"),
    ),
    *_in(
        JOURNAL,
        "integrity",
        DAMAGE,
        *SQLITE,
        changed_facts_are_believed=("        if bytes(row.checksum) != previous:", "        if False:"),
        missing_facts_are_not_missed=(
            "        if row.number != expected:",
            "        if False:",
            (DAMAGE, APPEND, *SQLITE),
        ),
        facts_of_a_later_term_are_believed=("        if row.term > leads.term:", "        if False:"),
        changed_states_are_believed=(
            "    if bytes(row.checksum) != kept_checksum(row.number, row.time, bytes(row.fact_checksum), bytes(row.document)):",
            "    if False:",
        ),
        changed_finished_jobs_are_believed=(
            "    return bytes(row.checksum) == row_checksum(values)",
            "    return True",
        ),
        missing_beginnings_are_not_missed=(
            "    if count and first != leads.base + 1:",
            "    if False:",
        ),
    ),
]

PARTS, STREAM, PROCESS, TASKS = (
    f"tests/runtime/agent/test_agent_{name}.py" for name in ("parts", "stream", "process", "tasks")
)
AGENT_MUTANTS = [
    *_in(
        AGENT,
        "exit_verdict",
        PROMISES,
        one_that_was_made_to_leave_is_done=("    if words.stopped or reached:", "    if words.stopped:"),
        a_failure_that_was_told_is_no_failure=(
            "    if words.failed is not None:\n        return",
            "    if False:\n        return",
        ),
        one_that_says_done_has_left=(
            '    if words.done:\n        return ExitVerdict(Ending.DONE, "it has done all of its steps")\n',
            "",
        ),
        a_crash_is_done=(
            "    if code == 0:\n        return ExitVerdict(Ending.DONE",
            "    if True:\n        return ExitVerdict(Ending.DONE",
        ),
    ),
    *_in(
        AGENT,
        "stream",
        STREAM,
        ends_are_said_once=(
            "        endings = [FromAgentFrame(number, self._endings[number]) for number in sorted(self._endings)]",
            "        endings: list[FromAgentFrame] = []",
        ),
        leases_count_from_when_they_arrive=(
            "        return self.sent.get(number, 0.0) if number else self.clock.time()",
            "        return self.clock.time()",
            (PROMISES, STREAM),
        ),
        tasks_that_end_are_missing_from_heartbeats=(
            "Heartbeat((*heartbeat.tasks, *self._ending_tasks()))",
            "Heartbeat(heartbeat.tasks)",
            (PROMISES, STREAM),
        ),
        another_end_is_acknowledged=(
            "        self._endings.pop(number, None)\n",
            "        self._endings.clear()\n",
            (PROMISES, STREAM),
        ),
    ),
    *_in(
        AGENT,
        "state",
        PROMISES,
        f"{PROCESS}::test_a_process_that_took_over_a_number_is_left_alone",
        f"{STREAM}::test_several_agents_live_in_one_process_but_not_in_one_directory",
        processes_of_the_last_agent_live_on=(
            "                killed += end_marked(Mark(**json.loads(file.read_text())))",
            "                pass",
        ),
        a_stranger_with_the_same_number_is_killed=(
            "found = bool(mark.started) and start_time(mark.pid) == mark.started",
            "found = bool(mark.started)",
        ),
        marks_of_an_earlier_boot_count=(
            "    if mark.boot != boot_id():\n        return False\n",
            "",
        ),
        two_agents_in_one_directory=(
            "        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            "        pass",
        ),
    ),
    *_in(
        "src/gavel/client",
        "iterator",
        "tests/client/test_checkpoints.py",
        random_state_is_not_restored_after_saving=(
            "            randomness.restore(states, self.data)\n        self._next_save",
            "        self._next_save",
        ),
    ),
]

LEAVING = Mutant(
    "evolving: a job that leaves during a solve asks for no new one",
    f"{SCHEDULER}/evolving.py",
    "        self._changed = self._changed or bool((slots < 0).any())  # a job has left or changed since",
    "",
    (ORDER,),
    also=(("        self.mechanism.leave(slot)\n        self._changed = True", "        self.mechanism.leave(slot)"),),
)

TOGETHER = [
    LEAVING,
    Mutant(
        "store: the place of the head is not checked",
        f"{JOURNAL}/store.py",
        "ours = (LEADER.c.term == self.term) & (LEADER.c.last == before.number)",
        "ours = LEADER.c.term == self.term",
        (ERRORS, *SQLITE),
        also=(
            (
                "LEADER.update().where(ours & (LEADER.c.last_checksum == before.checksum))",
                "LEADER.update().where(ours)",
            ),
        ),
    ),
    Mutant(
        "integrity: a missing end is not missed",
        f"{JOURNAL}/integrity.py",
        "    if head.number != leads.last:\n        raise CorruptJournalError",
        "    if False:\n        raise CorruptJournalError",
        (DAMAGE, *SQLITE),
        also=(
            ("    if head.checksum != leads.last_checksum:", "    if False:"),
            ("    if count != leads.last - leads.base:", "    if False:"),
        ),
    ),
]

REMOVAL = "tests/runtime/test_checkpoint_removal.py"
DISKS = "tests/runtime/agent/test_agent_disks.py"
REMOVAL_MUTANTS = [
    *_in(
        RUNTIME,
        "state",
        REMOVAL,
        checkpoints_of_a_job_that_runs_are_removed=(
            '        if record is not None and not record.finished:\n            return f"job {job} is {record.state}; only',
            '        if False:\n            return f"job {job} is only',
        ),
        checkpoints_are_removed_under_open_attempts=(
            "        if fenced or job in self.attempts.by_job:",
            "        if fenced:",
        ),
        checkpoints_are_removed_under_a_fence=(
            "        if fenced or job in self.attempts.by_job:",
            "        if job in self.attempts.by_job:",
        ),
        a_removal_that_is_outstanding_is_asked_again=(
            "if job not in known)\n        if fresh",
            "if True)\n        if fresh",
        ),
    ),
    *_in(
        RUNTIME,
        "removals",
        REMOVAL,
        agents_that_are_away_are_not_waited_for=(
            "        followed = min((self.done.get(agent, 0) for agent in agents), default=0)",
            "        followed = max((self.done.get(agent, 0) for agent in agents), default=0)",
        ),
        a_removal_without_agents_is_forgotten=(
            "for agent in agents), default=0)",
            "for agent in agents), default=self.last)",
        ),
        expiry_begins_again=("                self.expired = fact.through or self.expired", "                pass"),
    ),
    *_in(
        RUNTIME,
        "engine",
        REMOVAL,
        removals_are_forgotten_by_a_restart=(
            "        executor.remove_checkpoints(state.removals.outstanding())\n        if state.scheduler",
            "        if state.scheduler",
        ),
    ),
    *_in(
        RUNTIME,
        "fleet",
        REMOVAL,
        an_agent_that_returns_is_not_asked_again=("        self.clearing.forget(hello.agent)  # the", "        # the"),
    ),
    *_in(
        RUNTIME,
        "housekeeping",
        REMOVAL,
        finished_jobs_go_before_their_checkpoints=(
            "    if keep.checkpoints_days is None:\n        return math.inf",
            "    if True:\n        return math.inf",
        ),
    ),
    *_in(
        AGENT,
        "ownership",
        DISKS,
        any_name_of_a_job_is_a_path=(
            "    if not owner.cluster or not is_job_id(owner.job):",
            "    if not owner.cluster:",
        ),
        links_are_followed=("    if directory.is_symlink():", "    if False:"),
        unmarked_directories_are_removed=(
            'and _is_used(pinned):\n            raise NotOursError(f"nothing',
            'and False:\n            raise NotOursError(f"nothing',
        ),
        the_marker_goes_with_the_rest=("if path.name != MARKER]\n        if not left", "]\n        if not left"),
    ),
]

QUOTAS = "tests/security/test_quotas.py"
LIMIT_MUTANTS = [
    *_in(
        "src/gavel/security",
        "quotas",
        QUOTAS,
        jobs_behind_a_blocked_one_reserve_what_others_need=(
            "                blocked.update(full)\n",
            "",
        ),
        nothing_is_reserved_under_other_limits=(
            "                for who in limited:\n                    taken[who] += claim.workers\n",
            "                for who in () if full else limited:\n                    taken[who] += claim.workers\n",
        ),
        a_job_beyond_a_lowered_limit_blocks_all_others=(
            "if not limited or claim.workers <= min(limited.values()):",
            "if True:",
        ),
        teams_above_do_not_count=("for depth in range(len(parts))))", "for depth in range(len(parts))[-1:]))"),
        submissions_count_for_less_than_a_minute=("int(time) - WINDOW_SECONDS\n", "int(time) - WINDOW_SECONDS // 2\n"),
        limits_are_remembered_when_they_change=("        self._caps.clear()\n", ""),
    ),
    *_in(
        RUNTIME,
        "state",
        *_scenario("limited user", "limit lowered and raised"),
        new_jobs_are_always_admitted=(
            "held = self.gates.arrivals(jobs, event.by)",
            "held: dict[str, Cause] = {}",
        ),
        what_was_lowered_holds_nothing=(
            "while (excess := self.quotas.excess(self._stays)) is not None:",
            "while False:",
            ("tests/runtime/test_limits_service.py",),
        ),
        nothing_is_admitted_later=("        if opening.released:", "        if False:"),
        limits_are_not_kept=('document.get("quotas", {}), unfinished', "{}, unfinished"),
    ),
]

WAITING = "tests/runtime/test_waiting.py"
WAITING_MUTANTS = [
    *_in(
        RUNTIME,
        "gates",
        WAITING,
        a_job_submitted_on_hold_may_start=("            if each.request.hold:", "            if False:"),
        a_hold_is_forgotten_when_dependencies_are_met=(
            "return self._holds.get(job) or self.prerequisites.reason(job)",
            "return self.prerequisites.reason(job)",
        ),
        a_job_that_gets_a_place_needs_no_limit=(
            "admitted = self.quotas.admissible(through)",
            "admitted = (*self.quotas.admissible(), *through)",
        ),
        jobs_on_hold_count_against_limits=("            self.quotas.set_aside(fact.jobs)", "            pass"),
        holds_are_not_kept=('in document.get("held", ()):', "in ():"),
    ),
    *_in(
        RUNTIME,
        "limit_watch",
        TIME_LIMITS,
        a_limit_ends_a_job_that_has_not_begun=("            if self._may_use_time(job):", "            if True:"),
    ),
    *_in(
        RUNTIME,
        "outcomes",
        WAITING,
        only_the_first_jobs_of_an_array_count=(
            "end = min(first + MOST_JOBS_IN_A_CALL, engine.state.jobs.next_number)",
            "end = first + CHUNK",
        ),
    ),
    *_in(
        RUNTIME,
        "prerequisites",
        WAITING,
        a_failure_meets_every_dependency=('if condition == "ok" and self.failed:', "if False:"),
        one_of_several_dependencies_is_enough=(
            "        if not left:\n            del self._open[job]",
            "        del self._open[job]",
        ),
        an_array_has_ended_with_its_first_job=(
            "if not after.unfinished or (after.failed and not before.failed):\n                yield",
            "if True:\n                after = replace(after, unfinished=0)\n                yield",
        ),
        ends_of_arrays_are_not_kept=('document.get("arrays", {}).items():', "{}.items():"),
    ),
    *_in(
        RUNTIME,
        "throttles",
        WAITING,
        an_array_has_one_place_more=(
            "return max(self.at_once - len(self.placed), 0)",
            "return max(self.at_once - len(self.placed) + 1, 0)",
        ),
        places_are_given_in_order_of_submission=("return request.index or 0, int(job)", "return 0, int(job)"),
    ),
    *_in(
        RUNTIME,
        "batch",
        WAITING,
        cycles_are_accepted=("    _check_cycles(requests, whos, names)\n", ""),
    ),
    *_in(
        RUNTIME,
        "state",
        WAITING,
        a_running_job_that_is_held_goes_on=(
            'self._schedule(core.StopAsked(event.time, fresh, Cause(HELD, f"held by {event.by}")))',
            "pass",
        ),
    ),
]

TEMPLATES = "tests/runtime/test_templates.py"
TEMPLATE_MUTANTS = [
    *_in(
        RUNTIME,
        "state",
        TEMPLATES,
        what_was_learned_does_not_come_back=(
            "            self._note(TemplateRecalled(event.time, learned))",
            "            pass",
        ),
        what_is_on_its_way_to_the_table_is_lost=(
            "self.forgotten.get(template) or event.learned.get(template)",
            "event.learned.get(template)",
        ),
        templates_are_never_forgotten=(
            "            self._note(TemplatesForgotten(event.time, forgotten))",
            "            pass",
        ),
    ),
    *_in(
        RUNTIME,
        "templates",
        TEMPLATES,
        templates_with_jobs_are_forgotten=(
            "for template in learned if template not in used)",
            "for template in learned)",
        ),
        restarts_are_not_recalled=('learned["restart_seconds"])', "None)"),
    ),
    *_in(
        RUNTIME,
        "state_keeper",
        TEMPLATES,
        what_was_learned_is_not_written=(
            "finished_jobs(kept.finished), kept.learned)",
            "finished_jobs(kept.finished))",
        ),
    ),
    *_in(
        JOURNAL,
        "retention",
        TEMPLATES,
        learned_rows_are_never_removed=("            if count <= most:", "            if True:"),
        the_newest_learned_rows_go=("        by_age = sorted(rows,", "        by_age = sorted(rows, reverse=True,"),
    ),
]

INSISTENCE_MUTANTS = _in(
    RUNTIME,
    "journal_retry",
    "tests/runtime/test_journal_retry.py",
    a_start_is_never_given_up=("                if clock() >= end:", "                if False:"),
    a_start_is_not_tried_again=("                if clock() >= end:", "                if True:"),
    an_outage_is_not_said=("                if not failed:", "                if False:"),
)

IDENTITY_MUTANTS = [
    *_in(
        RUNTIME,
        "fleet",
        PROMISES,
        a_part_is_credited_to_a_namesake=(
            "order.holders.get(server) or self._agent_at(server)",
            "self._agent_at(server)",
        ),
        a_launch_follows_a_name_to_another_agent=(
            'return agent if order.holders.get(server, agent) == agent else ""',
            "return agent",
            (PROMISES, *_scenario("name that passes to another machine while a launch is written")),
        ),
        an_end_of_a_part_that_was_taken_for_lost_is_refused=(
            "        if part is not None:\n            return rank in part.all_ranks\n",
            "        if current is not None and current.number == attempt:\n            return current.held_by(agent, rank)\n",
            (PROMISES, *_scenario("gang of which a lost part returns after a restart")),
        ),
        a_launch_forgets_its_agent_over_a_restart=(
            "[Order(launch, holders.get((job, launch.attempt), {})) for launch in launches]",
            "[Order(launch, holders.get((job, launches[0].attempt), {})) for launch in launches]",
        ),
    ),
    *_in(
        RUNTIME,
        "engine",
        *_scenario("name that passes to another machine while a launch is written"),
        a_launch_is_performed_at_any_agent=(
            "self.executor.launch(command, self.state.attempts.holders_of(command.job, command.attempt))",
            "self.executor.launch(command, {})",
        ),
    ),
    *_in(
        RUNTIME,
        "open_attempts",
        PROMISES,
        kept_states_forget_who_holds_attempts=('entry.get("agents", {})', "{}"),
    ),
    *_in(
        RUNTIME,
        "agents",
        PROMISES,
        a_server_stays_with_its_first_agent=(
            "        self.by_server |= {server.name: fact.agent for server in fact.servers}",
            "        self.by_server = {server.name: fact.agent for server in fact.servers} | self.by_server",
        ),
    ),
]

SILENCE = "tests/journal/test_silence.py"
SILENCE_MUTANTS = _in(
    JOURNAL,
    "leader",
    SILENCE,
    a_silent_leader_leads_for_ever=("pid = :former OR (usename", "pid = :former OR (false AND usename"),
    an_idle_leader_is_not_heard=("            writer._pulse.start()", "            pass"),
    a_leader_that_works_is_replaced=("state LIKE 'idle%'", "true"),
)

TABLES = "tests/runtime/test_other_tables.py"
TABLE_MUTANTS = [
    *_in(
        RUNTIME,
        "server",
        TABLES,
        settings_that_do_not_fit_are_left_out=(
            "settings_document(scheduling)), _raise)",
            "settings_document(scheduling)))",
        ),
    ),
    *_in(
        RUNTIME,
        "configuration",
        TABLES,
        the_order_of_types_is_the_tables_own=('document["learned"], types)', 'document["learned"])'),
    ),
    *_in(
        "src/gavel/estimator",
        "learned",
        TABLES,
        priors_in_the_order_of_the_table=(
            "        prior[here] = listed[there]",
            "        prior[: len(listed)] = listed[: len(prior)]",
        ),
        pairs_in_the_order_of_the_table=("listed[:, 0, there]", "listed[:, 0, : len(there)]"),
    ),
    *_in(
        SCHEDULER,
        "state",
        TABLES,
        types_must_be_the_same=(
            "    if state.types != table.types[: len(state.types)]:",
            "    if state.types != table.types:",
        ),
    ),
]

SECRETS = "tests/runtime/test_secrets.py"
SECRET_MUTANTS = [
    *_in(
        RUNTIME,
        "job_secrets",
        SECRETS,
        secrets_stay_after_the_end=("        return [_removing(ended)] if ended else []", "        return []"),
        secrets_of_jobs_that_are_gone_stay=(
            "            insist(lambda: journal.write([_removing(leftovers)]))",
            "            pass",
        ),
        a_value_that_no_job_lists_is_accepted=(
            "    if unnamed := [name for name in values if name not in job.secrets]:",
            "    if unnamed := []:",
        ),
        values_are_not_checked_again=("        check_values(values)", "        pass"),
    ),
    *_in(
        RUNTIME,
        "fleet",
        SECRETS,
        a_lost_secret_is_not_noticed_before_the_start=(
            "(fault := self.secrets.fault(launch.job, record.request.secrets))",
            '(fault := "")',
        ),
    ),
    *_in(
        "src/gavel/security",
        "vault",
        "tests/security/test_vault.py",
        a_value_can_be_moved_to_another_name=("self._cluster, job, name])", 'self._cluster, job, ""])'),
        a_value_can_be_moved_to_another_cluster=('"gavel secret", self._cluster,', '"gavel secret",'),
        others_can_read_the_key=("os.O_EXCL, 0o600)", "os.O_EXCL, 0o644)"),
    ),
    *_in(
        JOURNAL,
        "accounts",
        SECRETS,
        a_removed_secret_stays_in_the_file=("PRAGMA secure_delete=ON", "PRAGMA secure_delete=OFF"),
    ),
    *_in(
        AGENT,
        "environment",
        SECRETS,
        the_environment_overrides_secrets=(
            "**start.request.environment, **start.secrets,",
            "**start.secrets, **start.request.environment,",
        ),
    ),
]

SECURITY = "src/gavel/security"
GATE = "tests/security/test_gate.py"
RIGHTS = "tests/security/test_ownership.py"
SECURITY_MUTANTS = [
    *_in(
        SECURITY,
        "gate",
        GATE,
        roles_are_not_checked=("if not caller.open and not need.met_by(caller.role):", "if False:"),
        a_call_without_a_declaration_is_admitted=(
            "        need = NEEDS.get(method)",
            "        need = NEEDS.get(method, Need.NOTHING)",
        ),
        a_token_counts_in_plaintext=("if not peer.encrypted and not peer.local:", "if False:"),
        a_session_counts_beyond_the_socket=(
            "text.startswith(SESSION_PREFIX) and peer.local",
            "text.startswith(SESSION_PREFIX)",
        ),
        users_act_for_others=("if not caller.open and not caller.operates:", "if False:"),
        operators_act_for_administrators=("if not caller.role.includes(user.role):", "if False:"),
        a_certificate_is_not_checked=(
            "agent, name = identities.certificates.check(peer.certificate)",
            'agent, name = "a1", "head"',
        ),
    ),
    *_in(
        SECURITY,
        "accounts",
        "tests/security/test_accounts.py",
        expired_tokens_count=("if now >= token.expires:", "if False:"),
        revoked_tokens_count=("        if token.revoked:", "        if False:"),
        tokens_of_disabled_users_count=("if user is None or user.disabled:", "if user is None:"),
        a_token_gives_its_own_role=(
            "return self.token.role if not self.token.role.includes(self.user.role) else self.user.role",
            "return self.token.role",
        ),
        a_join_token_is_used_for_ever=("if token.uses_left < 1:", "if False:"),
        a_join_token_is_a_login=("        if token.role is Role.AGENT:", "        if False:"),
        a_login_token_joins_agents=("if token.role is not Role.AGENT:", "if False:"),
        tokens_are_stored_as_they_are=(
            '    return sha256(text.encode(errors="replace")).hexdigest()',
            "    return text",
        ),
        the_last_administrator_can_go=("if admins == [name] and", "if False and"),
    ),
    *_in(
        SECURITY,
        "ownership",
        "tests/security/test_needs.py",
        requests_say_whose_job_it_is=(
            "job = replace(job, user=caller.user)",
            "job = replace(job, user=job.user or caller.user)",
        ),
        jobs_for_teams_of_others=(
            "caller.operates or caller.in_team(job.entity) or caller.leads_team(job.entity)",
            "True",
        ),
        any_weight=("    if caller.open or within or", "    if True or within or"),
    ),
    *_in(
        SECURITY,
        "roles",
        "tests/security/test_needs.py",
        private_jobs_are_read_by_the_team=(
            "(not job.private and caller.in_team(job.entity))",
            "caller.in_team(job.entity)",
        ),
        viewers_read_logs=("    if not caller.role.includes(Role.USER):", "    if False:"),
        a_team_is_found_by_its_first_letters=('team.startswith(above + "/")', "team.startswith(above)"),
    ),
    *_in(
        RUNTIME,
        "job_calls",
        RIGHTS,
        jobs_of_others_are_changed=(
            "            await self._check_may_change(record, method, context)",
            "            pass",
        ),
    ),
    *_in(
        RUNTIME,
        "submission_service",
        RIGHTS,
        keys_of_others_answer=('key = key if caller.open else f"{caller.user}:{key}"', "key = key"),
    ),
    *_in(
        RUNTIME,
        "job_verbs_service",
        RIGHTS,
        a_cancel_is_not_in_the_audit=(
            'self._driver.post(*cancelled, beside=self._audited("Cancel"))',
            "self._driver.post(*cancelled)",
        ),
    ),
    *_in(
        RUNTIME,
        "service",
        RIGHTS,
        logs_of_others_are_read=("if not may_read(current(), record.request):", "if False:"),
        environments_of_others_are_shown=(
            "shown = not caller.open and may_read(caller, record.request)",
            "shown = not caller.open",
        ),
        agents_without_tls_get_secrets=(
            "    return caller.open or bool(caller.agent or caller.agent_name)",
            "    return True",
            ("tests/security/test_plaintext_agents.py",),
        ),
    ),
    *_in(
        RUNTIME,
        "fleet",
        "tests/runtime/test_hostile_agents.py",
        any_rank_counts_after_a_restart=("if record is not None and rank >= record.request.workers:", "if False:"),
    ),
    *_in(
        RUNTIME,
        "access",
        "tests/security/test_account_changes.py",
        changes_are_made_side_by_side=(
            "            async with self.turn:\n                return await change()",
            "            return await change()",
        ),
        a_caller_that_is_gone_takes_its_change_along=(
            "        return await asyncio.shield(working)",
            "        return await working",
        ),
    ),
    *_in(
        AGENT,
        "ownership",
        "tests/runtime/agent/test_planted_directories.py",
        a_removal_follows_a_link=(
            'pinned = Path(f"/proc/self/fd/{descriptor}")\n        if not _is_marked(pinned',
            "pinned = directory\n        if not _is_marked(pinned",
        ),
        a_planted_directory_is_used=("if found.st_uid != account.uid or found.st_mode & 0o022:", "if False:"),
    ),
    *_in(
        RUNTIME,
        "accounts_service",
        "tests/security/test_account_calls.py",
        tokens_with_more_rights=("if not owner.role.includes(role):", "if False:"),
        tokens_for_others=("if owner.name != caller.user and caller.role is not Role.ADMIN:", "if False:"),
        tokens_beyond_the_callers_own=("if owner.name == caller.user and not caller.role.includes(role):", "if False:"),
        open_streams_outlive_their_token=("self._access.end_streams(lambda caller: caller.token in gone)", "pass"),
        open_streams_outlive_their_user=(
            "self._access.end_streams(lambda caller: name in {caller.user, caller.by})",
            "pass",
        ),
        tokens_of_others_are_revoked=("if not _may_revoke(caller, record):", "if False:"),
        derived_tokens_outlive_a_revocation=(
            "gone = [record.id, *accounts.made_with(record.id)]",
            "gone = [record.id]",
        ),
        tokens_of_others_are_listed=("if wanted != caller.user and not caller.operates:", "if False:"),
    ),
]

NOTIFY = "src/gavel/runtime/notify"
NOTIFIED, CALLED, BOUNDED = (
    "tests/runtime/test_notifications.py",
    "tests/runtime/test_notification_calls.py",
    "tests/runtime/test_notification_bounds.py",
)
NOTIFY_MUTANTS = [
    *_in(
        NOTIFY,
        "hosts",
        CALLED,
        any_port_of_a_listed_host=(
            "if (endpoint.scheme, endpoint.port) != (self.scheme, self.port):",
            "if endpoint.scheme != self.scheme:",
        ),
        any_name_that_ends_like_a_listed_one=(
            'endpoint.host.endswith(f".{self.name}")',
            "endpoint.host.endswith(self.name)",
        ),
        names_below_a_domain_lead_anywhere=(
            "public_only=below,",
            "public_only=False,",
        ),
    ),
    *_in(
        NOTIFY,
        "calling",
        CALLED,
        private_addresses_of_public_names=(
            "if is_public(address)]",
            "if address]",
        ),
        a_call_without_a_time_limit=(
            "        async with asyncio.timeout(seconds):",
            "        async with asyncio.timeout(None):",
        ),
    ),
    *_in(
        NOTIFY,
        "notifier",
        NOTIFIED,
        notifications_only_in_memory=(
            "return [*addition.writes, *self._memos.writes()]",
            "return []",
        ),
        delivered_again_by_every_scheduler=(
            "            await self._write(self._outbox.remove(over))",
            "            self._outbox.remove(over)",
        ),
        urls_of_jobs_are_not_checked=(
            "        for urls in {job.notify for job in jobs if job.notify}:",
            "        for urls in ():",
        ),
        one_key_for_all_users=(
            'self._vault.derive("notifications", user)',
            'self._vault.derive("notifications", self._wall().hex())',
        ),
    ),
    *_in(
        NOTIFY,
        "outbox",
        BOUNDED,
        no_bound_for_one_receiver=("if len(self.lanes.get(lane, ())) >= MOST_IN_A_LANE:", "if False:"),
        no_bound_for_one_user=("if self.of_user[happening.user] >= MOST_OF_A_USER:", "if False:"),
        a_summary_before_it_is_written=("        if self.unwritten:\n            return []", "        pass"),
    ),
    *_in(
        NOTIFY,
        "stuck",
        NOTIFIED,
        told_at_every_look=('if told is not None and tuple(told["sign"]) == sign:', "if False:"),
        jobs_that_never_showed_anything=('if alive else ""', 'if True else ""'),
    ),
    *_in(
        NOTIFY,
        "courier",
        BOUNDED,
        one_failure_stops_the_others=(
            "queue.waiting.append(delivery)\n            if not",
            "queue.waiting.appendleft(delivery)\n            if not",
        ),
        a_slow_host_takes_every_place=("most = self._at_places.get(place, AT_ONE_PLACE)", "most = AT_ONCE"),
    ),
    *_in(
        "src/gavel/client",
        "webhooks",
        "tests/client/test_webhooks.py",
        any_signature=(
            'if not hmac.compare_digest(signature_of(key, timestamp, body).encode(), signature.encode(errors="replace")):',
            "if False:",
        ),
        old_notifications_are_believed=("if not abs(age) <= tolerance_seconds:", "if False:"),
    ),
    *_in(
        RUNTIME,
        "event_lines",
        NOTIFIED,
        urls_in_events=("list(map(host_only, urls))", "urls"),
        urls_of_jobs_in_events=('list(map(host_only, request["notify"]))', 'request["notify"]'),
    ),
    *_in(
        RUNTIME,
        "job_edits_service",
        "tests/security/test_notification_rights.py",
        urls_of_others_are_used_again=("if request.user == current().user else", "if True else"),
    ),
]

JOB_VERBS = "tests/cli/test_job_verbs.py"
SELECTION_MUTANTS = [
    *_in(
        "src/gavel/cli",
        "selecting",
        JOB_VERBS,
        a_verb_without_a_selector_takes_all=("if not selection.narrows and not everything:", "if False:"),
        a_finished_job_that_is_named_is_skipped=("if named and (wrong := fault(job)):", "if named and (wrong := ''):"),
        what_a_verb_does_not_concern_is_taken=("if named or applies(job):", "if True:"),
        many_jobs_end_unasked=("if yes or len(jobs) <= ASKED_ABOVE:", "if True:"),
    ),
    *_in(
        "src/gavel/client",
        "api",
        JOB_VERBS,
        a_member_stands_for_its_array=(
            "{job.id: job for job in found if wanted(job.id, job.request, job.state)}",
            "{job.id: job for job in found}",
        ),
        an_unknown_array_is_nothing=("        if array not in known:", "        if False:"),
    ),
    *_in(
        RUNTIME,
        "selecting",
        "tests/runtime/test_selecting.py",
        tags_are_ignored=("            and has_tags(request.tags, tags)\n", ""),
        arrays_end_early=("first + MOST_JOBS_IN_A_CALL - 1", "first + 1"),
    ),
    *_in(
        JOURNAL,
        "finished",
        "tests/runtime/test_selecting.py",
        classes_of_characters_are_plain_text=('wider = re.sub(r"\\[!?\\]?[^]]*\\]", "?", pattern)', "wider = pattern"),
    ),
    *_in(
        "src/gavel/cli",
        "completion_answers",
        "tests/cli/test_shell_completion.py",
        names_that_a_shell_runs=("and _SAFE.fullmatch(word)]", "]"),
    ),
    *_in(
        "src/gavel/client",
        "job_file",
        "tests/client/test_extends.py",
        circles=("if any(each.path is not None and _same(each.path, place) for each in chain):", "if False:"),
    ),
]

NEEDS_TEST = "tests/scheduler/test_server_needs.py::test_"
NEEDS_MUTANTS = [
    *_in(
        SCHEDULER,
        "room",
        f"{NEEDS_TEST}cores_are_counted_on_each_server",
        cores_and_memory_are_promised_twice=("return np.maximum(count, 0)", "return accelerators"),
        too_small_accelerators_are_used=(
            "    if load.gpu_memory:\n",
            "    if False:\n",
            (f"{NEEDS_TEST}only_those_servers_of_a_type_are_used_whose_accelerators_are_large_enough",),
        ),
        silent_jobs_take_nothing=(
            "not all(each.millicores for each in needs)",
            "False",
            (f"{NEEDS_TEST}a_job_without_a_statement_takes_its_accelerators_part_of_the_server",),
        ),
    ),
    *_in(
        SCHEDULER,
        "evolving",
        f"{NEEDS_TEST}servers_that_join_or_leave_change_which_types_fit",
        types_stay_closed_when_servers_join=("        self.beliefs.fit_again(self.roster)\n", ""),
    ),
    *_in(
        SCHEDULER,
        "posing",
        f"{NEEDS_TEST}pairs_that_together_exceed_the_accelerator_are_not_formed",
        pairs_exceed_the_accelerator=("rates[at][:, tight[problem.column_type]] = 0.0", "pass"),
    ),
    *_in(
        SCHEDULER,
        "seating",
        f"{NEEDS_TEST}no_plan_promises_more_than_servers_have_and_nothing_idles_beside_a_job_that_fits",
        what_was_to_yield_stops_for_nothing=(
            "        if starting.isdisjoint(run.members) and room.fits_at(run, before[run]):",
            "        if False:",
            (f"{NEEDS_TEST}what_would_stop_for_a_run_that_fits_nowhere_continues",),
        ),
    ),
    *_in(
        AGENT,
        "confinement",
        "tests/runtime/agent/test_confinement.py::test_with_cgroup_v2_limits_are_set_in_the_group_of_the_task_itself",
        memory_is_not_limited=("        (group / limit).write_text(str(memory))\n", "        pass\n"),
    ),
    *_in(
        AGENT,
        "allotment",
        "tests/runtime/agent/test_discovery.py",
        hip_counts_among_all_devices=(
            "        return {ROCR: listed, HIP: within, CUDA: within}\n",
            "        return {HIP: listed, CUDA: listed}\n",
        ),
    ),
]

TERMINALS = "tests/runtime/test_terminals.py"
AGENT_TERMINALS = "tests/runtime/agent/test_agent_terminal.py"
OTHERS_TERMINAL = (
    "tests/security/test_rights_attacks.py::test_the_attack_fails_and_disturbs_nothing[Typing at the terminal of another user's job, from another team, from the same team, and as its lead]",
)
TERMINAL_MUTANTS = [
    *_in(
        RUNTIME,
        "terminal_service",
        TERMINALS,
        anyone_types_at_a_terminal=("if not may_type(caller, record.request):", "if False:", OTHERS_TERMINAL),
        jobs_without_a_terminal_take_keys=("if not record.request.terminal:", "if False:"),
    ),
    *_in(
        RUNTIME,
        "fleet",
        TERMINALS,
        keys_pile_up_for_an_agent_that_does_not_read=("or member.link.unread() >= MOST_UNREAD_BY_TERMINAL", ""),
        keys_reach_another_attempt_of_the_terminal=(
            "or attempt.number != keys.attempt or attempt.parts[0]",
            "or attempt.parts[0]",
        ),
    ),
    *_in(
        RUNTIME,
        "terminals",
        TERMINALS,
        one_who_left_the_terminal_counts_as_there=("        session.left = True\n", ""),
        sizes_of_a_terminal_are_not_checked=(
            "if (fault := keys_fault(wanted)) is not None:",
            "if (fault := keys_fault(wanted)) is None and False:",
        ),
    ),
    *_in(
        AGENT,
        "terminal",
        AGENT_TERMINALS,
        keys_pile_up_for_a_terminal_that_is_not_read=(
            "if self._waiting_bytes + len(keys) > MOST_TYPED_BYTES:",
            "if False:",
        ),
        a_terminal_without_a_user_stays=("if now - self._heard_at < self.linger_seconds:", "if True:"),
        a_terminal_ends_because_the_scheduler_is_away=("if not self.attached():", "if False:"),
    ),
    *_in(
        "src/gavel/client",
        "guard",
        "tests/runtime/agent/test_isolation.py::test_a_terminal_belongs_to_the_account_of_its_user_alone",
        the_terminal_belongs_to_root=("            os.fchown(self.theirs, user, group)\n", ""),
    ),
]

OWN_LOOP, SIGTERM = "tests/client/test_own_loop.py", "tests/client/test_sigterm.py"
LEAVING_MUTANTS = [
    *_in(
        "src/gavel/client",
        "own_loop",
        OWN_LOOP,
        who_leaves_does_not_say_so=(
            '        self._say("stopped", **saved, **why)',
            "        self._say('progress')",
            (OWN_LOOP, TASKS),
        ),
        finished_work_is_not_said=(
            '            self._say("done", **({} if counted is None else {"steps": counted}))',
            "            return",
        ),
        who_saw_the_order_overlooked_it=("not (self._seen or self._orders.terminated or uncaught)", "not uncaught"),
        who_asks_is_not_asked=("                self._link.greet(asks=True)", "                return", (TASKS,)),
    ),
    *_in(
        "src/gavel/client",
        "termination",
        SIGTERM,
        OWN_LOOP,
        sigterm_interrupts_a_save=("        if not self._listeners and not self.received:", "        if True:"),
        children_survive_sigterm=(
            "        self._restore()\n        self.received = False",
            "        self.received = False",
        ),
        handlers_of_programs_are_lost=("        if callable(self._previous):", "        if False:"),
        an_iterator_made_after_sigterm_goes_on=(
            "        if self.received:\n            listener",
            "        if False:\n            listener",
        ),
    ),
    *_in(
        AGENT,
        "task",
        TASKS,
        an_order_nobody_looked_at_undoes_the_end=(
            "        overlooked = self.words.unaware and code == 0",
            "        overlooked = False",
        ),
    ),
]

MUTANTS: tuple[Mutant, ...] = (
    *SELECTION_MUTANTS,
    *TOGETHER,
    *ENGINE_MUTANTS,
    *STATE_MUTANTS,
    *JOBS_MUTANTS,
    *AGENTS_MUTANTS,
    *OPEN_MUTANTS,
    *START_MUTANTS,
    *CONTAINER_MUTANTS,
    *FLEET_MUTANTS,
    *ATTEMPTS_MUTANTS,
    *OTHER_RUNTIME_MUTANTS,
    *SCHEDULER_MUTANTS,
    *JOURNAL_MUTANTS,
    *AGENT_MUTANTS,
    *REMOVAL_MUTANTS,
    *TEMPLATE_MUTANTS,
    *LIMIT_MUTANTS,
    *WAITING_MUTANTS,
    *INSISTENCE_MUTANTS,
    *TABLE_MUTANTS,
    *IDENTITY_MUTANTS,
    *SILENCE_MUTANTS,
    *SECRET_MUTANTS,
    *SECURITY_MUTANTS,
    *NOTIFY_MUTANTS,
    *NEEDS_MUTANTS,
    *TERMINAL_MUTANTS,
    *LEAVING_MUTANTS,
)
