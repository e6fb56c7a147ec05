"""The iterator in one process: what it yields, what it tells the agent, and how it resumes."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from counting import Model, Shuffled, until
from hypothesis import given
from hypothesis import strategies as st

from fake_agent import PATIENCE, FakeAgent
from gavel.client.errors import CheckpointError
from gavel.client.iterator import GavelIterator
from job_fixtures import Training


def run(steps: GavelIterator[Any], model: Model | None = None) -> list[Any]:
    """Train to the end, and return what was seen."""
    model = model or Model()
    while not steps.done:
        model.seen.extend(steps)
    return model.seen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "abc"),
        ({"epochs": 2}, "abcabc"),
        ({"steps": 5}, "abcab"),
        ({"steps": 5, "epochs": 1}, "abc"),
        ({"steps": 2, "epochs": 4}, "ab"),
    ],
)
def test_without_gavel_it_ends_after_the_steps_or_epochs_asked_for(
    training: Training, options: dict[str, int], expected: str
) -> None:
    steps = training("abc", **options)
    assert "".join(run(steps)) == expected
    assert steps.step == len(expected)
    assert not steps.preempted


def test_each_for_loop_is_an_epoch(training: Training) -> None:
    steps = training([1, 2], epochs=3)
    assert [(steps.epoch, list(steps)) for _ in range(4)] == [(0, [1, 2]), (1, [1, 2]), (2, [1, 2]), (3, [])]


def test_the_jobs_number_of_steps_overrides_the_programs(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAVEL_STEPS", "7")
    assert len(run(training("abc", steps=100))) == 7
    assert len(run(training("abc"))) == 7
    assert len(run(training("abc", epochs=1))) == 3


def test_a_batch_counts_when_the_next_is_asked_for_also_in_a_new_loop(training: Training) -> None:
    steps = training("abcd")
    for batch in steps:
        if batch == "b":
            break
    assert steps.step == 1
    assert list(steps) == ["c", "d"]
    assert steps.step == 4


def test_data_without_batches_is_refused_instead_of_waited_for_forever(training: Training) -> None:
    steps = training(iter("ab"), epochs=2)
    with pytest.raises(ValueError, match="epoch 1 has no batches"):
        run(steps)


def test_one_callback_without_the_other_is_refused(training: Training) -> None:
    with pytest.raises(ValueError, match="go together"):
        training("abc", save_checkpoint=lambda directory: directory)


@pytest.mark.parametrize(
    ("name", "value"), [("GAVEL_STEPS", "many"), ("GAVEL_RANK", "nan"), ("GAVEL_LEASE_SECONDS", "soon")]
)
def test_a_malformed_variable_is_named(
    training: Training, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} is '{value}'"):
        training("abc")


@given(
    count=st.integers(1, 5),
    total=st.integers(1, 12),
    lengths=st.lists(st.integers(0, 6), max_size=4),
    seed=st.integers(0, 1000),
)
def test_runs_that_were_interrupted_anywhere_see_what_one_run_sees(
    tmp_path_factory: pytest.TempPathFactory, count: int, total: int, lengths: list[int], seed: int
) -> None:
    def seen(directory: Path, stops: list[float]) -> list[Any]:
        for stop in stops:  # every run begins as the program begins, and has a checkpoint after each step
            random.seed(seed)
            model, data = Model(), Shuffled(count)
            options: dict[str, Any] = {"checkpoint_dir": directory, "checkpoint_every_seconds": 0, **model.callbacks}
            steps: GavelIterator[int] = GavelIterator(data, steps=total, **options)
            made = 0
            while not steps.done and made < stop:
                for batch in steps:
                    model.seen.append((steps.epoch, batch, random.randrange(1000)))
                    made += 1
                    if made >= stop:
                        break
                random.random()  # the program does something between epochs
            steps.close()
        return [tuple(entry) for entry in model.seen]

    once = seen(tmp_path_factory.mktemp("once"), [float("inf")])
    often = seen(tmp_path_factory.mktemp("often"), [*map(float, lengths), float("inf")])
    assert len(once) == total
    assert often == once


def test_asked_to_stop_it_finishes_the_step_saves_and_leaves(job: FakeAgent, training: Training) -> None:
    model = Model()
    steps = training(itertools.count(), **model.callbacks)
    assert job.expect("hello") == {"op": "hello", "protocol": 1, "rank": 0, "asks": True, "from": 0}
    for batch in steps:
        if batch == 5:
            job.send(op="stop")
            until(lambda: steps.leaving)
        model.seen.append(batch)
    assert (steps.step, steps.done, steps.preempted) == (6, True, True)
    assert job.expect("saved")["steps"] == 6
    assert job.expect("stopped")["steps"] == 6
    assert list(steps) == []
    again = Model()
    training(itertools.count(), steps=7, **again.callbacks)
    assert again.seen == [0, 1, 2, 3, 4, 5]


def test_a_job_stopped_in_mid_epoch_resumes_in_mid_epoch(job: FakeAgent, training: Training) -> None:
    random.seed(3)
    model, data = Model(), Shuffled(10)
    steps = training(data, epochs=2, **model.callbacks)
    job.expect("hello")
    for batch in itertools.chain(steps, steps):
        model.seen.append(batch)
        if steps.step == 13:
            job.send(op="stop")
            until(lambda: steps.leaving)
    random.seed(4)
    resumed = Model()
    rest = run(training(data, epochs=2, **resumed.callbacks), resumed)
    assert rest[:14] == model.seen
    assert sorted(rest[:10]) == sorted(rest[10:]) == list(range(10))


def test_stopped_before_it_began_it_leaves_without_a_step(job: FakeAgent, training: Training) -> None:
    job.greeting = ({"op": "stop"},)
    steps = training(itertools.count())
    until(lambda: steps.leaving)
    assert len(run(steps)) <= 1
    assert steps.preempted
    assert job.expect("stopped")["steps"] == 0


def test_when_all_steps_are_made_it_saves_and_says_done(
    job: FakeAgent, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_STEPS", "4")
    model = Model()
    assert run(training("abc", **model.callbacks), model) == list("abca")
    assert job.expect("saved")["steps"] == 4
    assert job.expect("done")["steps"] == 4
    once_more = training("abc", **model.callbacks)
    assert once_more.done
    assert job.expect("done")["steps"] == 4


def test_near_the_end_of_its_lease_it_asks_and_without_an_answer_it_leaves(job: FakeAgent, training: Training) -> None:
    job.greeting = ({"op": "lease", "seconds": 0.4},)
    model = Model()
    steps = training(itertools.count(), **model.callbacks)
    for batch in steps:
        model.seen.append(batch)
    job.expect("renew")
    assert steps.preempted
    assert job.expect("stopped")["steps"] == steps.step == len(model.seen)


def test_a_renewed_lease_lets_it_continue(job: FakeAgent, training: Training) -> None:
    job.greeting = ({"op": "lease", "seconds": 0.4},)
    steps = training(itertools.count())
    batches = iter(steps)
    job.expect("renew")
    job.send(op="lease", seconds=1000.0)
    job.send(op="pace", rate=1e6)
    until(lambda: steps._orders.rate)
    until(lambda: next(batches) > 1000)
    assert not steps.done


def test_the_first_steps_are_reported_before_the_usual_time(
    job: FakeAgent, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gavel.client.link.PROGRESS_SECONDS", 100 * PATIENCE)
    batches = iter(training(itertools.count()))
    for _ in range(4):
        next(batches)
    assert job.expect("progress")["measured_steps"] > 0


def test_the_lease_in_the_environment_holds_until_a_newer_one_arrives(
    training: Training, monkeypatch: pytest.MonkeyPatch, job: FakeAgent
) -> None:
    monkeypatch.setenv("GAVEL_LEASE_SECONDS", "0.2")
    job.silent = True
    steps = training(itertools.count())
    run(steps)
    job.expect("stopped")
    assert steps.preempted


def test_when_the_link_breaks_it_continues_until_its_lease_ends(job: FakeAgent, training: Training) -> None:
    job.greeting = ({"op": "lease", "seconds": 0.5},)
    model = Model()
    steps = training(itertools.count(), **model.callbacks)
    job.expect("hello")
    job.hang_up()
    until(lambda: steps._link.broken)
    at_break = steps.step
    for batch in steps:
        model.seen.append(batch)
    assert steps.preempted
    assert steps.step > at_break
    saved = Model()
    training(itertools.count(), **saved.callbacks)
    assert saved.seen == model.seen


def test_without_its_agent_it_warns_and_trains(
    training: Training, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GAVEL_SOCKET", str(tmp_path / "missing"))
    assert run(training("abc")) == list("abc")
    assert "no connection to Gavel's agent" in capfd.readouterr().err


def test_messages_that_it_does_not_know_do_not_disturb_it(job: FakeAgent, training: Training) -> None:
    steps = training(itertools.count())
    job.expect("hello")
    job._connections[0].sendall(
        b'not json\n{"op":"lease"}\n{"op":"pace","rate":"fast"}\n[]\n{"op":"dance"}\n{"op":"stop"}\n'
    )
    run(steps)
    assert steps.preempted


def test_progress_adds_up_to_what_was_done_and_measures_all_but_the_first_step(
    job: FakeAgent, training: Training
) -> None:
    run(training(range(1000)))
    done = job.expect("done")
    reports = job.heard("progress")
    assert reports[-1]["steps"] == done["steps"] == 1000
    assert sum(report["measured_steps"] for report in reports) == 999
    assert all(report["measured_seconds"] > 0 for report in reports)


def test_a_slow_pace_is_interrupted_by_another_pace_and_by_stop(job: FakeAgent, training: Training) -> None:
    def crawls() -> bool:
        return steps._pace is not None and steps._pace.rate == 1e-6  # a step takes eleven days

    steps = training(itertools.count())
    job.expect("hello")
    trainer = threading.Thread(target=run, args=(steps,))
    trainer.start()
    job.send(op="pace", rate=1e-6)
    until(crawls)
    made = steps.step
    job.send(op="pace", rate=1e6)
    until(lambda: steps.step > made + 10)
    job.send(op="pace", rate=1e-6)
    until(crawls)
    job.send(op="stop")
    trainer.join(PATIENCE)
    assert steps.preempted
    job.expect("stopped")


def test_two_processes_without_a_gang_leave_saving_to_the_first(
    training: Training, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    model = Model()
    run(training("abc", checkpoint_dir=tmp_path / "none", **model.callbacks))
    assert not (tmp_path / "none").exists()


def test_a_directory_that_cannot_be_created_is_reported_with_the_reason(
    job: FakeAgent, training: Training, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GAVEL_CHECKPOINT_DIR", str(tmp_path / "file" / "inside"))
    with pytest.raises(CheckpointError, match=r"cannot create the checkpoint directory .*: Not a directory"):
        training("abc", **Model().callbacks)
    assert "cannot create the checkpoint directory" in job.expect("failed")["reason"]


def test_samplers_that_shuffle_by_epoch_are_told_the_epoch(training: Training) -> None:
    class Sampler:
        told: list[int] = []  # noqa: RUF012 - only this test sees it

        def set_epoch(self, epoch: int) -> None:
            self.told.append(epoch)

    class Loader(list[int]):
        sampler = Sampler()

    run(training(Loader([1, 2]), epochs=3))
    assert Sampler.told == [0, 1, 2]
