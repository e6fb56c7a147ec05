"""Why jobs may not run yet: holds, dependencies, arrays and limits, compared with a model that looks at every job."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting_model import BY, SETTINGS, Model, Played, refused, request, text_of

from gavel.client.requests import Submission
from gavel.client.views import JobState, Transition
from gavel.core.errors import InputError
from gavel.core.events import JobsHeld, JobsReleased
from gavel.core.facts import JobQueued
from gavel.runtime.configuration import Configurator
from gavel.runtime.events import EditAsked, JobsSubmitted
from gavel.runtime.facts import HoldsChanged
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.outcomes import outcomes
from gavel.runtime.prerequisites import Ends
from gavel.runtime.state import ClusterState
from gavel.security.quotas import Kind, OverLimitError, Subject

ANN = Subject(Kind.USER, BY)


@pytest.fixture
def played() -> Played:
    return Played()


# ---- against the model ----

CONDITIONS = st.sampled_from(["ok", "any", "failed"])
REQUESTS = st.fixed_dictionaries(
    {
        "workers": st.sampled_from([1, 1, 2]),
        "user": st.sampled_from([BY, "bob"]),
        "hold": st.sampled_from([False, False, False, True]),
        "array": st.sampled_from(["", "", "0-3%2", "5,1,3%1", "2-4", "0-5%3"]),
        "after": st.lists(st.tuples(st.integers(0, 30), st.booleans(), CONDITIONS), max_size=2),
    }
)
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.lists(REQUESTS, min_size=1, max_size=3)),
    st.tuples(
        st.just("end"),
        st.tuples(st.integers(0, 60), st.sampled_from(["completed", "completed", "failed", "cancelled"])),
    ),
    st.tuples(st.sampled_from(["hold", "release", "requeue"]), st.lists(st.integers(0, 60), min_size=1, max_size=3)),
    st.tuples(st.just("limit"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["round", "restart"]), st.none()),
)


def play(model: Model, kind: str, what: Any) -> None:
    """Let one thing happen, if it can."""
    played, jobs = model.played, model.unfinished
    if kind == "submit":
        try:
            requests = [asked(model, each) for each in what]
            model.submitted(played.submit(*requests, outcomes=model.journal()))
        except InputError as error:
            assert isinstance(error, OverLimitError) or "can never start" in str(error)  # noqa: PT017 - or it is accepted
    elif kind == "limit":
        played.limit(ANN, what)
    elif kind == "round":
        played.round()
    elif kind == "restart":
        played.state = played.again()
    elif not jobs:
        return
    elif kind == "end":
        job = jobs[what[0] % len(jobs)]
        model.outcomes[job] = what[1]
        played.end(job, what[1])
    else:
        chosen = list(dict.fromkeys(jobs[number % len(jobs)] for number in what))
        change(model, kind, chosen)


def change(model: Model, kind: str, jobs: list[str]) -> None:
    played = model.played
    before = text_of(played.state)
    told = refused({"hold": played.hold, "release": played.release, "requeue": played.requeue}[kind], *jobs)
    if kind == "hold":
        assert not told
        model.held |= set(jobs)
    elif kind == "release":
        assert bool(told) == (not model.held.issuperset(jobs))
        model.held -= set() if told else set(jobs)
    if told:
        assert text_of(played.state) == before, "nothing is half done"


def asked(model: Model, fields: dict[str, Any]) -> Submission:
    """A request whose dependencies are on jobs and arrays that there are."""
    known, after = list(model.requests), []
    for number, whole, condition in fields["after"]:
        if known:
            job = known[number % len(known)]
            array = model.requests[job].array_id
            after.append(f"{array if whole and array else job}:{condition}")
    return request(**(fields | {"after": tuple(dict.fromkeys(after))}))


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=150)
def test_exactly_the_jobs_that_should_be_on_hold_are_and_for_the_first_reason(steps: list[tuple[str, Any]]) -> None:
    model = Model(Played())
    for kind, what in steps:
        play(model, kind, what)
        model.check()


@given(st.lists(STEPS, max_size=14))
@settings(max_examples=50)
def test_facts_alone_give_the_state_that_existed_after_every_event(steps: list[tuple[str, Any]]) -> None:
    model = Model(Played(keeps_states=True))
    for kind, what in steps:
        if kind != "restart":
            play(model, kind, what)
    model.played.replayed()


@given(st.lists(STEPS, max_size=14), st.lists(STEPS, max_size=6))
@settings(max_examples=50)
def test_a_state_read_from_its_document_decides_the_same(first: list[Any], then: list[Any]) -> None:
    model = Model(Played())
    for kind, what in first:
        play(model, kind, what)
    document = text_of(model.played.state)
    model.played.state = model.played.again()
    assert text_of(model.played.state) == document
    for kind, what in then:
        play(model, kind, what)
        model.check()


# ---- holds ----


def test_a_held_job_does_not_start_until_it_is_released(played: Played) -> None:
    held, free = played.submit(request(hold=True), request())
    played.round()
    assert played.state.jobs[held].state is JobState.QUEUED
    assert played.state.jobs[free].state is JobState.RUNNING
    assert played.reason(held) == "held by you"
    played.release(held)
    played.round()
    assert played.state.jobs[held].state is JobState.RUNNING


def test_holding_a_running_job_makes_it_leave_and_wait_with_the_name_of_who_held_it(played: Played) -> None:
    (job,) = played.submit(request())
    played.round()
    played.hold(job)
    record = played.state.jobs[job]
    assert (record.state, record.history[-1].code, record.history[-1].reason) == ("preempted", "held", "held by ann")
    played.round()
    assert played.state.jobs[job].state is JobState.PREEMPTED
    played.release(job)
    played.round()
    assert (played.state.jobs[job].state, played.state.jobs[job].attempts) == ("running", 2)


def test_holding_again_changes_nothing_and_the_first_who_held_it_is_told(played: Played) -> None:
    (job,) = played.submit(request())
    assert [type(fact) for fact in played.hold(job)] == [HoldsChanged, JobsHeld]
    assert played.hold(job) == []


def test_a_release_of_a_job_that_no_user_holds_says_what_it_waits_for_and_releases_none(played: Played) -> None:
    first, held = played.submit(request(), request(hold=True))
    (second,) = played.submit(request(after=(first,)))
    told = refused(played.release, held, second)
    assert told == f"job {second} is not held by a user: it is queued, waits until job {first} has completed"
    assert played.codes() == {held: "held", second: "dependency"}


@pytest.mark.parametrize("verb", ["hold", "release", "requeue"])
def test_a_finished_or_unknown_job_is_refused_and_none_of_the_others_changes(played: Played, verb: str) -> None:
    done, held, running = played.submit(request(), request(hold=True), request())
    played.round()
    played.end(done)
    good = held if verb == "release" else running
    for bad, told in (
        (done, f"job {done} has completed; use `gavel resubmit {done}` to run it again"),
        ("99", "there is no job '99'; `gavel jobs --all` lists them"),
    ):
        before = text_of(played.state)
        assert refused(getattr(played, verb), good, bad) == told
        assert text_of(played.state) == before


# ---- requeue ----


def test_a_requeued_job_leaves_and_may_start_again_at_once(played: Played) -> None:
    (job,) = played.submit(request())
    played.round()
    played.requeue(job)
    assert played.state.jobs[job].history[-1].reason == "requeued by ann"
    assert played.codes() == {}
    played.round()
    assert (played.state.jobs[job].state, played.state.jobs[job].attempts) == ("running", 2)


def test_a_requeued_job_that_pauses_after_a_failure_pauses_no_longer(played: Played) -> None:
    (job,) = played.submit(request())
    played.round()
    played.fail(job)
    played.round()
    assert played.state.jobs[job].state is JobState.QUEUED
    played.requeue(job)
    played.round()
    assert (played.state.jobs[job].state, played.state.jobs[job].failures) == ("running", 1)
    assert text_of(played.replayed()) == text_of(played.state)


def test_a_waiting_job_that_does_not_pause_cannot_be_requeued(played: Played) -> None:
    (job,) = played.submit(request())
    told = refused(played.requeue, job)
    assert told.startswith(f"job {job} neither runs nor pauses after a failure, so there is nothing to requeue")


# ---- dependencies ----


def test_jobs_refer_to_jobs_and_arrays_of_their_submission_by_name(played: Played) -> None:
    ids = played.submit(
        request("prepare"),
        request("sweep", array="0-1", after=("prepare",)),
        request("part-{index}", array="7,8"),
        request("report", after=("sweep:any", "part-8")),
    )
    assert ids == ["1", "2", "3", "4", "5", "6"]
    assert played.state.jobs["3"].request.after == ("1:ok",)
    assert played.state.jobs["6"].request.after == ("a2:any", "5:ok")
    assert played.reason("6") == "waits until array a2 has ended, and job 5 has completed"
    for job in ("1", "2", "5"):
        played.end(job)
    assert played.codes() == {"6": "dependency"}
    played.end("3", "failed")
    assert played.codes() == {}


def test_a_name_that_several_jobs_have_means_all_of_them(played: Played) -> None:
    played.submit(request("part"), request("part"), request("sum", after=("part",)))
    assert played.state.jobs["3"].request.after == ("1:ok", "2:ok")


def test_a_dependency_that_can_never_be_met_keeps_the_job_and_says_what_happened(played: Played) -> None:
    first, second = played.submit(request("x"), request("y", after=("x",)))
    played.end(first, "failed")
    assert played.codes() == {second: "never"}
    assert played.reason(second) == (
        "it can never start: job 1 has failed, and it waits until job 1 has completed; cancel it, or name other jobs "
        "with `gavel edit 2 --after`"
    )
    assert played.state.jobs[second].history[-1].code == "never"


def test_the_first_failure_of_an_array_is_told_while_its_other_jobs_still_run(played: Played) -> None:
    played.submit(request("x", array="0-2"), request("y", after=("x",)), request("z", after=("x:failed",)))
    played.end("2", "cancelled")
    assert played.codes() == {"4": "never", "5": "dependency"}
    assert "job 2 of array a1 was cancelled" in played.reason("4")
    played.end("1")
    played.end("3")
    assert played.codes() == {"4": "never"}


BAD_AFTER = {
    "an unknown name": ([request("x", after=("y",))], "job 'x' waits for 'y', but no job of this submission has that"),
    "an unknown id": ([request(after=("7",))], "the job waits for job '7', but there is none"),
    "an unknown array": ([request(after=("a7:any",))], "the job waits for array 'a7', but there is none"),
    "its own future id": ([request("x"), request(after=("1",))], "job 2 of the submission waits for job '1'"),
    "the future id of a named job": ([request("x"), request("y", after=("x", "1"))], "waits for job '1', but there is"),
    "itself": ([request("x", after=("x",))], "job 'x' waits for itself"),
    "its own array": ([request("x", array="0-3", after=("x:any",))], "job 'x' waits for itself"),
    "a cycle": (
        [request("x", after=("z",)), request("y", after=("x",)), request("z", after=("y",))],
        "these jobs wait for each other, so none could ever start: 'x' → 'z' → 'y' → 'x'",
    ),
    "a cycle through one of an array": (
        [request("x-{index}", array="0-1", after=("y",)), request("y", after=("x-1",))],
        "wait for each other",
    ),
    "opposites": ([request("x"), request(after=("x:ok", "x:failed"))], "has completed and has failed"),
    "too many jobs": ([request(array="0-9999"), request()], "10,001 jobs in one call; submit at most 10,000"),
    "too many jobs in a grid": (
        [request(array="0-9999", grid={"lr": tuple(map(str, range(9)))})],
        "90,000 jobs in one call",
    ),
    "too many dependencies of one": (
        [request("x")] * 1001 + [request(after=("x",))],
        "would wait for 1,001 jobs, at most 1,000",
    ),
    "too many dependencies": (
        [request("x")] * 100 + [request(array="0-1999", after=("x",))],
        "more than 100,000 dependencies",
    ),
    "too much text": ([request(array="0-9999", environment={"X": "x" * 10_000})], "at most 64 MiB are allowed"),
    "a long name": ([request("{index}" + "x" * 195, array="100000")], "the name has 201 characters"),
}


@pytest.mark.parametrize("what", BAD_AFTER)
def test_a_submission_that_makes_no_sense_is_refused_as_a_whole(what: str) -> None:
    requests, sentence = BAD_AFTER[what]
    played = Played(accelerators=0)
    assert sentence in refused(played.submit, *requests)
    assert played.state.jobs.next_number == 1


def test_what_already_ended_counts_also_if_only_the_journal_knows_it(played: Played) -> None:
    done, failed = played.submit(request(), request())
    played.end(done)
    played.end(failed, "failed")
    gone = {"90": Ends(completed=1), "a91": Ends(completed=4, failed=1, first="93", how="cancelled")}
    (job,) = played.submit(request(after=(done, f"{failed}:failed", "90", "a91:any")), outcomes=gone)
    assert job not in played.codes()
    for after, told in (
        (done + ":failed", f"job {done} has completed, and it waits until job {done} has failed or was cancelled"),
        (failed, f"job {failed} has failed, and it waits until job {failed} has completed"),
        ("a91", "job 93 of array a91 was cancelled, and it waits until array a91 has completed"),
    ):
        waits = JobsSubmitted(9.0, (request(after=(after,)),), "k", outcomes=gone)
        assert refused(played.take, waits) == f"the job can never start: {told}"
    assert text_of(played.replayed()) == text_of(played.state)


def test_what_a_job_waits_for_can_be_replaced_but_not_so_that_jobs_wait_for_each_other(played: Played) -> None:
    played.submit(request("x"), request("y", array="0-1", after=("x",)), request("z", after=("y",)))
    change = played.state.replace_dependencies
    for job, after, told in (
        ("1", ["4"], "these jobs would wait for each other, so none could ever start: 1 → 4 → a2 → 1"),
        ("2", ["a2"], "these jobs would wait for each other, so none could ever start: 2 → a2"),
        ("4", ["9"], "job 4 waits for job '9', but there is none"),
        ("4", ["y"], "job 4 cannot wait for 'y': write the id of a job or array"),
        ("9", ["1"], "there is no job '9'"),
    ):
        before = text_of(played.state)
        assert refused(change, 9.0, job, after, BY).startswith(told)
        assert text_of(played.state) == before
    played.end("1", "failed")
    assert played.codes() == {"2": "never", "3": "never", "4": "dependency"}
    change(played.time, "2", ["1:any"], BY)
    played.round()
    played.round()
    assert "2" not in played.codes()
    assert played.state.jobs["2"].request.after == ("1:any",)
    assert played.state.jobs["2"].state is JobState.RUNNING
    assert "has started already" in refused(change, played.time, "2", [], BY)


# ---- arrays ----


def test_an_array_of_ten_thousand_runs_in_order_of_index_and_never_more_at_once_than_it_may() -> None:
    played = Played(accelerators=0)
    ids = played.submit(request("sweep-{index}", array="0-9999%3"))
    assert (len(ids), played.state.jobs["10000"].request.name) == (10_000, "sweep-9999")
    assert played.state.jobs["7"].request.command == ("train", "6")
    assert set(ids) - played.codes().keys() == {"1", "2", "3"}
    for ended, released in (("2", "4"), ("1", "5"), ("3", "6"), ("5", "7"), ("4", "8")):
        assert [fact.jobs for fact in played.end(ended) if isinstance(fact, JobsReleased)] == [(released,)]
    assert len(played.codes()) == 10_000 - 8
    assert played.reason("9") == "array a1 runs at most 3 jobs at once"


def test_indices_decide_the_order_and_not_the_order_in_which_they_were_written(played: Played) -> None:
    played.submit(request(array="9,4,6,1%2"))
    assert set(played.codes()) == {"1", "3"}
    played.end("4")
    assert set(played.codes()) == {"1"}


def test_a_job_keeps_its_place_while_it_is_preempted_or_pauses_and_loses_it_when_its_user_holds_it(
    played: Played,
) -> None:
    played.submit(request(array="0-2%1"))
    played.round()
    played.requeue("1")
    assert set(played.codes()) == {"2", "3"}
    played.round()
    played.fail("1")
    assert set(played.codes()) == {"2", "3"}
    played.hold("1")
    assert played.codes() == {"1": "held", "3": "array"}
    played.release("1")
    assert played.codes() == {"1": "array", "3": "array"}
    played.end("2")
    assert played.codes() == {"3": "array"}


def test_more_at_once_lets_more_start_and_fewer_stops_nothing(played: Played) -> None:
    played.submit(request(array="0-5%2"))
    played.take(EditAsked(9.0, ("1",), request(at_once=4), ("at_once",), BY))
    assert set(played.codes()) == {"5", "6"}
    assert played.reason("5") == "array a1 runs at most 4 jobs at once"
    assert played.state.jobs["5"].history[-1].reason == "array a1 runs at most 4 jobs at once"
    played.round()
    played.take(EditAsked(300.0, ("1",), request(at_once=1), ("at_once",), BY))
    assert set(played.codes()) == {"5", "6"}, "nothing that runs is stopped"
    played.requeue("1", "2")
    assert set(played.codes()) == {"1", "2", "5", "6"}
    assert text_of(played.replayed()) == text_of(played.state)


# ---- limits ----


def test_jobs_that_wait_for_another_reason_neither_use_nor_reserve_accelerators(played: Played) -> None:
    played.limit(ANN, 2)
    played.submit(request("x", hold=True), request("y", workers=2), request("z", after=("x",)), request())
    assert played.codes() == {"1": "held", "3": "dependency", "4": "over_limit"}
    assert played.state.quotas.used_by(ANN, played.time).unfinished_jobs == 4
    assert played.state.quotas.used_by(ANN, played.time).running_accelerators == 2
    played.release("1")
    assert played.codes() == {"1": "over_limit", "3": "dependency", "4": "over_limit"}
    played.end("2")
    assert played.codes() == {"3": "dependency"}


def test_jobs_that_waited_for_a_limit_under_version_0_3_still_do_and_are_admitted_later(played: Played) -> None:
    played.limit(ANN, 1)
    played.submit(request(), request())
    document = json.loads(json.dumps(played.state.document()))
    del document["gates"]
    played.state = ClusterState.of(document, Configurator(SETTINGS))
    assert played.codes() == {"2": "over_limit"}
    played.end("1")
    assert played.codes() == {}


def test_the_cause_of_a_submission_on_hold_is_in_the_journal_with_who_asked(played: Played) -> None:
    played.submit(request(hold=True, user="bob"), by="olga")
    (queued,) = [fact for fact in played.facts if isinstance(fact, JobQueued)]
    assert queued.held is not None
    assert (queued.held.code, queued.held.text) == ("held", "held by olga")


def test_an_array_has_completed_only_if_its_last_job_has_however_far_apart_its_jobs_are() -> None:
    """Jobs of an array that is submitted again may have many others of the same call between them."""
    first, others, last = 1, range(2, 1200), 1200
    states = {first: JobState.COMPLETED, **dict.fromkeys(others, JobState.COMPLETED), last: JobState.FAILED}
    records = {
        str(number): LiveJobRecord(
            id=str(number),
            request=request(array_id="a1" if number in (first, last) else ""),
            submitted=0.0,
            history=(Transition(float(number), state, ""),),
        )
        for number, state in states.items()
    }
    engine: Any = SimpleNamespace(
        records=records,
        state=SimpleNamespace(jobs=SimpleNamespace(next_number=last + 1)),
        journal=SimpleNamespace(finished=lambda _: SimpleNamespace(jobs=[])),
    )
    assert outcomes(engine, ["a1"]) == {"a1": Ends(completed=1, failed=1, first="1200", how="failed")}
