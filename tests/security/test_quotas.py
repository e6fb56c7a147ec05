"""Limits of users and teams: what is refused, what is admitted in which order, and that nothing starves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.security.quotas import (
    EVERYBODY,
    NO_LIMITS,
    Kind,
    Limits,
    OverLimitError,
    Quotas,
    Subject,
    over_rate,
    over_size,
    over_unfinished,
    subjects_of,
)

ANN, BOB = Subject(Kind.USER, "ann"), Subject(Kind.USER, "bob")
RESEARCH, NLP = Subject(Kind.TEAM, "research"), Subject(Kind.TEAM, "research/nlp")


def job(workers: int = 1, user: str = "ann", team: str | None = None) -> Submission:
    return Submission(command=("train",), workers=workers, user=user, entity=team)


class World:
    """Quotas, and a scheduler that records what they decide."""

    def __init__(self, limits: dict[Subject, Limits] | None = None) -> None:
        self.quotas = Quotas()
        self.time = 1_000.0
        self.jobs: dict[str, Submission] = {}
        self.running: set[str] = set()
        self.last = 0
        for subject, each in (limits or {}).items():
            self.limit(subject, each)

    def submit(self, *requests: Submission) -> list[str]:
        self.quotas.check(requests, self.time)
        ids = [str(self.last + 1 + number) for number in range(len(requests))]
        self.last += len(requests)
        held = self.quotas.must_wait(list(zip(ids, requests, strict=True)))
        for name, request in zip(ids, requests, strict=True):
            self.jobs[name] = request
            self.quotas.queued(name, request, self.time, held=name in held)
        assert self.quotas.admissible() == ()
        return ids

    def end(self, name: str) -> None:
        self.quotas.ended(name)
        del self.jobs[name]
        self.running.discard(name)
        self.settle()

    def limit(self, subject: Subject, limits: Limits) -> None:
        self.quotas.change(subject, limits)
        self.settle()

    def settle(self) -> None:
        while (excess := self.quotas.excess(self.running.__contains__)) is not None:
            self.quotas.held(excess[0])
        self.quotas.released(self.quotas.admissible())
        assert self.quotas.admissible() == ()

    @property
    def waiting(self) -> list[str]:
        return [name for name in self.jobs if self.quotas.waits(name)]

    @property
    def admitted(self) -> list[str]:
        return [name for name in self.jobs if not self.quotas.waits(name)]

    def recount(self) -> None:
        """Compare what was counted with a count of all jobs."""
        for subject in {subject for each in self.jobs.values() for subject in subjects_of(each.user, each.entity)}:
            mine = {name: each for name, each in self.jobs.items() if subject in subjects_of(each.user, each.entity)}
            used = self.quotas.used_by(subject, self.time)
            assert used.unfinished_jobs == len(mine)
            assert used.running_accelerators == sum(
                each.workers for name, each in mine.items() if not self.quotas.waits(name)
            )


# ---- sentences ----


def test_a_limit_that_is_exceeded_is_told_with_limit_use_and_what_to_do() -> None:
    assert over_unfinished(ANN, 10, 8, 3) == (
        "ann may have 10 unfinished jobs, has 8, and submits 3 more; wait until some have finished, cancel some, or "
        "ask an operator for a higher limit"
    )
    assert over_rate(RESEARCH, 10, 8, 3) == (
        "team research may submit 10 jobs a minute, has submitted 8, and submits 3 more; wait a minute, or ask for a "
        "higher limit"
    )
    assert over_rate(ANN, 10, 0, 11) == (
        "ann may submit 10 jobs a minute, and submits 11 at once; submit fewer at a time, or ask an operator for a "
        "higher limit"
    )
    assert over_size(ANN, 1, 16) == (
        "a job needs 16 accelerators, but ann may run 1 at a time; give it fewer workers, or ask an operator for a "
        "higher limit"
    )


@pytest.mark.parametrize("check", [over_unfinished, over_rate])
def test_nothing_is_told_up_to_the_limit_or_without_one(check: Any) -> None:
    assert check(ANN, 10, 8, 2) is None
    assert check(ANN, 0, 10**9, 10**9) is None
    assert over_size(ANN, 8, 8) is over_size(ANN, 0, 10**9) is None


# ---- submission ----


def test_a_submission_beyond_the_unfinished_jobs_is_refused_as_a_whole() -> None:
    world = World({ANN: Limits(unfinished_jobs=3)})
    world.submit(job(), job())
    with pytest.raises(OverLimitError, match="ann may have 3 unfinished jobs, has 2, and submits 2 more"):
        world.submit(job(), job())
    assert world.submit(job(user="bob"), job(user="bob"), job(user="bob"), job(user="bob"))
    assert world.submit(job())
    world.end("1")
    assert world.submit(job())


def test_the_limit_of_a_team_covers_the_teams_below_it() -> None:
    world = World({RESEARCH: Limits(unfinished_jobs=2)})
    world.submit(job(team="research/nlp"), job(user="bob", team="research"))
    for team in ("research", "research/nlp", "research/vision/deep"):
        with pytest.raises(OverLimitError, match="team research may have 2"):
            world.submit(job(user="eve", team=team))
    assert world.submit(job(team="researchers"), job())


def test_jobs_in_one_call_that_belong_to_different_teams_count_together_where_they_meet() -> None:
    world = World({RESEARCH: Limits(unfinished_jobs=3)})
    with pytest.raises(OverLimitError, match="submits 4 more"):
        world.submit(*[job(team=team) for team in ("research", "research/nlp") for _ in range(2)])
    assert not world.jobs


def test_the_default_applies_to_every_user_without_a_limit_of_that_kind() -> None:
    world = World({EVERYBODY: Limits(unfinished_jobs=1, submissions_per_minute=5), BOB: Limits(unfinished_jobs=2)})
    assert world.submit(job())
    with pytest.raises(OverLimitError, match="ann may have 1 unfinished job, has 1"):
        world.submit(job())
    assert world.submit(job(user="bob"), job(user="bob"))
    assert world.quotas.limits_of(BOB) == Limits(unfinished_jobs=2, submissions_per_minute=5)
    assert world.submit(job(user=""), job(user=""), job(user=""))  # of before there were users


def test_submissions_in_any_minute_stay_within_the_limit_and_finished_ones_count() -> None:
    world = World({ANN: Limits(submissions_per_minute=3)})
    for name in world.submit(job(), job(), job()):
        world.end(name)
    for seconds in (0.0, 30.0, 29.9):
        world.time += seconds
        with pytest.raises(OverLimitError, match="has submitted 3"):
            world.submit(job())
    world.time += 2.0
    assert world.submit(job(), job(), job())


def test_old_submissions_and_users_are_forgotten() -> None:
    world = World()
    for number in range(500):
        world.end(world.submit(job(user=f"user {number}"))[0])
        world.time += 1.0
    assert len(world.quotas._uses) <= 62
    assert not world.quotas._subjects


def test_a_job_larger_than_the_limit_is_refused_when_it_is_submitted() -> None:
    world = World({NLP: Limits(running_accelerators=4)})
    with pytest.raises(OverLimitError, match="a job needs 5 accelerators, but team research/nlp may run 4 at a time"):
        world.submit(job(1, team="research/nlp"), job(5, team="research/nlp"))
    assert world.submit(job(5, team="research"))


@pytest.mark.parametrize("limits", [Limits(unfinished_jobs=-1), Limits(submissions_per_minute=float("nan"))])
def test_a_limit_that_is_no_number_is_refused(limits: Limits) -> None:
    with pytest.raises(InputError, match="it must be 0"):
        limits.check()


def test_a_rate_below_one_job_a_minute_is_refused() -> None:
    with pytest.raises(InputError, match=r"submissions_per_minute is 0.5; it must be 0 or at least 1"):
        Limits(submissions_per_minute=0.5).check()


# ---- running accelerators ----


def test_jobs_are_admitted_in_order_of_submission_up_to_the_limit() -> None:
    world = World({ANN: Limits(running_accelerators=8)})
    world.submit(job(4), job(4), job(2), job(1), job(8, user="bob"))
    assert world.admitted == ["1", "2", "5"]
    assert world.quotas.reason("3").text == "ann may run 8 accelerators at a time, and uses 8"
    assert world.quotas.reason("3").code == "over_limit"
    world.end("2")
    assert world.waiting == []


def test_a_small_job_does_not_overtake_a_large_one_of_the_same_user() -> None:
    world = World({ANN: Limits(running_accelerators=8)})
    world.submit(job(4), job(8), job(1))
    assert world.admitted == ["1"]
    assert world.quotas.reason("3").text == "ann may run 8 accelerators at a time, and uses 4; earlier jobs come first"
    world.end("1")
    assert world.admitted == ["2"]
    world.end("2")
    assert world.admitted == ["3"]


def test_a_job_that_waits_for_its_team_leaves_the_rest_of_its_users_limit_to_others() -> None:
    limits = {ANN: Limits(running_accelerators=8), NLP: Limits(running_accelerators=4)}
    world = World(limits)
    world.submit(job(4, user="bob", team="research/nlp"), job(4, team="research/nlp"), job(4), job(4))
    assert world.waiting == ["2", "4"]  # 4 of ann's 8 are reserved for job 2
    world.end("3")
    assert world.waiting == ["2"]
    world.end("1")
    assert world.waiting == []


def test_a_job_behind_one_that_does_not_fit_reserves_nothing() -> None:
    world = World({ANN: Limits(running_accelerators=4), NLP: Limits(running_accelerators=4)})
    world.submit(job(4), job(4), job(4, team="research/nlp"), job(4, user="bob", team="research/nlp"))
    assert world.waiting == ["2", "3"]


def test_cancelling_the_job_that_waits_first_admits_the_next() -> None:
    world = World({ANN: Limits(running_accelerators=8)})
    world.submit(job(4), job(8), job(1))
    world.end("2")
    assert world.admitted == ["1", "3"]


def test_raising_or_removing_a_limit_admits_jobs_at_once() -> None:
    world = World({ANN: Limits(running_accelerators=1)})
    world.submit(*[job()] * 5)
    world.limit(ANN, Limits(running_accelerators=3))
    assert world.admitted == ["1", "2", "3"]
    world.limit(ANN, NO_LIMITS)
    assert not world.waiting


def test_lowering_a_limit_stops_no_job_and_holds_the_latest_that_do_not_run() -> None:
    world = World()
    world.submit(*[job()] * 6)
    world.running = {"2", "5", "6"}
    world.limit(ANN, Limits(running_accelerators=2))
    assert world.admitted == ["2", "5", "6"]
    world.running.remove("6")  # its turn ended
    world.settle()
    assert world.admitted == ["2", "5"]
    world.end("2")
    assert world.admitted == ["1", "5"]


def test_a_job_that_became_larger_than_a_lowered_limit_blocks_no_other() -> None:
    world = World({ANN: Limits(running_accelerators=8)})
    world.submit(job(8), job(8), job(1))
    world.limit(ANN, Limits(running_accelerators=4))
    world.end("1")
    assert world.admitted == ["3"]
    assert world.quotas.reason("2").text.startswith("a job needs 8 accelerators, but ann may run 4 at a time")


LIMITS = st.builds(Limits, running_accelerators=st.integers(0, 6))
SUBJECTS = st.sampled_from([ANN, BOB, RESEARCH, NLP, EVERYBODY])
STEPS = st.one_of(
    st.tuples(st.just("limit"), SUBJECTS, LIMITS),
    st.tuples(
        st.just("submit"),
        st.lists(
            st.builds(
                job,
                st.integers(1, 4),
                st.sampled_from(["ann", "bob", ""]),
                st.sampled_from([None, "research", "research/nlp"]),
            ),
            min_size=1,
            max_size=4,
        ),
        st.none(),
    ),
    st.tuples(st.just("end"), st.integers(0, 30), st.none()),
    st.tuples(st.just("run"), st.integers(0, 30), st.none()),
    st.tuples(st.just("stop"), st.integers(0, 30), st.none()),
)


def play(world: World, steps: list[tuple[str, Any, Any]]) -> None:
    for kind, who, what in steps:
        if kind == "limit":
            world.limit(who, what)
        elif kind == "submit":
            try:
                world.submit(*who)
            except OverLimitError:
                continue
        elif world.jobs:
            name = list(world.jobs)[who % len(world.jobs)]
            if kind == "end":
                world.end(name)
            elif kind == "run" and not world.quotas.waits(name):
                world.running.add(name)
            elif kind == "stop":
                world.running.discard(name)
                world.settle()
        check(world)


def check(world: World) -> None:
    world.recount()
    for subject in world.quotas._uses:
        limit = world.quotas.limits_of(subject).running_accelerators
        used = world.quotas.used_by(subject, world.time).running_accelerators
        mine = [n for n in world.admitted if subject in subjects_of(world.jobs[n].user, world.jobs[n].entity)]
        assert not limit or used <= limit or set(mine) <= world.running
    assert not world.running.intersection(world.waiting)


@given(st.lists(STEPS, max_size=30))
@settings(max_examples=300)
def test_only_running_jobs_exceed_a_limit_and_counts_agree_with_a_recount(steps: list[tuple[str, Any, Any]]) -> None:
    play(World(), steps)


@given(st.lists(STEPS, max_size=30), st.lists(STEPS, max_size=10))
@settings(max_examples=150)
def test_quotas_read_from_a_document_decide_the_same(first: list[Any], then: list[Any]) -> None:
    world, other = World(), World()
    play(world, first)
    document = json.loads(json.dumps(world.quotas.document()))
    other.quotas = Quotas.of(document, reversed(world.jobs.items()))
    other.jobs, other.running, other.last = dict(world.jobs), set(world.running), world.last
    assert other.quotas.document() == document
    play(world, then)
    play(other, then)
    assert other.quotas.document() == world.quotas.document()
    assert other.waiting == world.waiting


@given(st.lists(STEPS, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_nothing_starves_while_later_jobs_keep_coming(steps: list[Any], random: Any) -> None:
    world = World()
    play(world, steps)
    for name in [name for name in world.waiting if fits_alone(world, name)]:
        for _ in range(200):
            if not world.quotas.waits(name):
                break
            world.submit(*[job(user=user, team=team) for user in ("ann", "bob") for team in (None, "research/nlp")])
            world.end(random.choice(world.admitted))
        else:
            pytest.fail(f"job {name} still waits after 200 later jobs")


def fits_alone(world: World, name: str) -> bool:
    request = world.jobs[name]
    limits = [world.quotas.limits_of(subject) for subject in subjects_of(request.user, request.entity)]
    return all(not each.running_accelerators or request.workers <= each.running_accelerators for each in limits)
