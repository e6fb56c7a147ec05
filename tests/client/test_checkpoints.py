"""Checkpoints are complete or absent, even when the disk is full, the process is killed, or a file is damaged."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from counting import Model

from fake_agent import PATIENCE, FakeAgent
from gavel.client.checkpoints import POSITION, Checkpoints
from gavel.client.errors import CheckpointError
from job_fixtures import Training

PROGRAM = Path(__file__).parent / "counting_program.py"


def stand_at(training: Training, directory: Path, *steps: int) -> Model:
    """Leave a checkpoint at each of these steps, as several runs would."""
    model = Model()
    for step in steps:
        model = Model()
        run = training(itertools.count(), steps=step, checkpoint_dir=directory, **model.callbacks)
        model.seen.extend(run)
    return model


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_last_two_are_kept(training: Training, tmp_path: Path) -> None:
    stand_at(training, tmp_path, 2, 3, 5, 8)
    assert names(tmp_path) == ["step-000000005", "step-000000008"]
    assert names(tmp_path / "step-000000008") == [POSITION, "seen.json"]


def test_what_a_killed_save_left_is_ignored_and_removed(training: Training, tmp_path: Path) -> None:
    stand_at(training, tmp_path, 3)
    for name in (".unfinished-7", ".unfinished-old-step-000000003"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "seen.json").write_text("[")
    stand_at(training, tmp_path, 4)
    assert names(tmp_path) == ["step-000000003", "step-000000004"]


def test_a_process_killed_while_it_saves_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    arguments = [sys.executable, str(PROGRAM), str(tmp_path)]
    with subprocess.Popen([*arguments, "--hang-at", "9"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saving at 9\n"
        process.kill()
    assert names(tmp_path)[0] == ".unfinished-9"
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert ended.stdout == "began at 8\nseen 0 to 19\n"
    assert names(tmp_path) == ["step-000000019", "step-000000020"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("the writer failed")])
def test_a_save_that_fails_ends_the_training_and_keeps_the_old_checkpoint(
    job: FakeAgent, training: Training, tmp_path: Path, error: Exception
) -> None:
    directory = tmp_path / "checkpoints"
    before = stand_at(training, directory, 3)
    model = Model()

    def save(directory: Path) -> None:
        (directory / "half").touch()
        raise error

    steps = training(itertools.count(), steps=5, load_checkpoint=model.load, save_checkpoint=save)
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint at step 5 to .*(No space|failed)"):
        list(steps)
    assert "cannot write the checkpoint" in job.expect("failed")["reason"]
    assert names(directory) == ["step-000000003"]
    assert model.seen == before.seen


def test_a_real_limit_of_the_system_is_reported_the_same_way(agent: FakeAgent, tmp_path: Path) -> None:
    environment = {**os.environ, "GAVEL_SOCKET": agent.path, "GAVEL_CHECKPOINT_DIR": str(tmp_path)}
    arguments = [sys.executable, str(PROGRAM), "ignored", "--file-limit", "1000"]
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 1
    assert "CheckpointError: cannot write the checkpoint at step 1" in ended.stderr
    assert "File too large" in agent.expect("failed")["reason"]
    assert names(tmp_path) == []


def test_a_checkpoint_that_the_program_cannot_load_is_passed_over_with_a_warning(
    training: Training, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_at(training, tmp_path, 3, 6)
    (tmp_path / "step-000000006" / "seen.json").write_text("[1, 2")
    assert stand_at(training, tmp_path, 4).seen == [0, 1, 2, 3]
    assert "step-000000006 cannot be loaded (JSONDecodeError" in capfd.readouterr().err
    assert names(tmp_path) == ["step-000000003", "step-000000004", "unreadable-step-000000006"]


@pytest.mark.parametrize("damage", ["", "[]", '{"format": 99}', '{"format": 1, "step": 6}'])
def test_a_damaged_position_is_passed_over_too(
    training: Training, tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    stand_at(training, tmp_path, 3, 6)
    (tmp_path / "step-000000006" / POSITION).write_text(damage)
    assert stand_at(training, tmp_path, 7).seen == list(range(7))
    assert "step-000000006 cannot be loaded" in capfd.readouterr().err


def test_when_none_can_be_loaded_nothing_is_thrown_away_and_nothing_begun(training: Training, tmp_path: Path) -> None:
    stand_at(training, tmp_path, 3, 6)
    for checkpoint in Checkpoints(tmp_path).newest_first():
        (checkpoint / "seen.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be loaded, not even the newest, step-0+6"):
        stand_at(training, tmp_path, 7)
    assert names(tmp_path) == ["step-000000003", "step-000000006"]


def test_other_files_in_the_directory_are_left_alone(training: Training, tmp_path: Path) -> None:
    (tmp_path / "step-by-step.txt").touch()
    (tmp_path / "best").mkdir()
    stand_at(training, tmp_path, 1, 2, 3)
    assert names(tmp_path) == ["best", "step-000000002", "step-000000003", "step-by-step.txt"]


def test_the_position_is_readable_json(training: Training, tmp_path: Path) -> None:
    model = Model()
    list(training("abcd", steps=3, checkpoint_dir=tmp_path, **model.callbacks))
    document = json.loads((tmp_path / "step-000000003" / POSITION).read_text())
    assert (document["step"], document["epoch"], document["index"]) == (3, 0, 3)
    assert set(document["randomness"]) == {"0"}


def test_a_save_that_draws_random_numbers_does_not_change_the_training(training: Training, tmp_path: Path) -> None:
    random.seed(1)
    expected = [random.random() for _ in range(4)]
    random.seed(1)
    steps = training(
        itertools.count(),
        steps=4,
        checkpoint_dir=tmp_path,
        checkpoint_every_seconds=0,
        load_checkpoint=lambda _: None,
        save_checkpoint=lambda _: random.random(),
    )
    assert [random.random() for _ in steps] == expected
