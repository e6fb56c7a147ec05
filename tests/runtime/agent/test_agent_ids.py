"""Ids in the scheduler's orders never lead out of the agent's directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_stage import attached, play, shell, start

from gavel.runtime.agent.state import StateDirectory
from gavel.wire import gavel_pb2 as pb

STRANGE_IDS = ["..", ".", "", "nul\x00", "9" * 10_000, "x" * 151]
QUOTED_IDS = ["a/b", "../up", "/root/escaped"]


@pytest.mark.parametrize("job", STRANGE_IDS)
def test_a_job_whose_id_cannot_name_a_directory_does_not_start(tmp_path: Path, job: str) -> None:
    async def scene() -> None:
        async with attached(tmp_path / "inner", cluster="lab") as (_, session):
            session.send(start(job, shell("touch $GAVEL_CHECKPOINT_DIR/trace")))
            ended = await session.ended(job)
            assert ended.how == pb.TaskEnded.CRASHED
            assert ended.hopeless
            assert "cannot name a directory" in ended.reason

    play(scene())
    assert [path for path in tmp_path.rglob("*") if path.name in ("trace", ".gavel-owner.json")] == []


@pytest.mark.parametrize("job", QUOTED_IDS)
def test_separators_in_an_id_are_quoted(tmp_path: Path, job: str) -> None:
    async def scene() -> None:
        async with attached(tmp_path / "inner", cluster="lab") as (_, session):
            session.send(start(job, shell("touch $GAVEL_CHECKPOINT_DIR/trace")))
            assert (await session.ended(job)).how == pb.TaskEnded.DONE

    play(scene())
    (trace,) = tmp_path.rglob("trace")
    assert trace.parent.parent == tmp_path / "inner" / "checkpoints"


@pytest.mark.parametrize("job", [*STRANGE_IDS, *QUOTED_IDS])
def test_the_log_of_a_task_is_in_the_directory_of_logs(tmp_path: Path, job: str) -> None:
    log = StateDirectory(tmp_path).log(job, 1, 0)
    assert log.resolve().parent == (tmp_path / "logs").resolve()
    log.parent.mkdir()
    log.write_text("taken by the file system")


@pytest.mark.parametrize("job", [*STRANGE_IDS, *QUOTED_IDS, "٣"])
def test_no_checkpoints_are_removed_for_a_strange_id(tmp_path: Path, job: str) -> None:
    async def scene() -> None:
        async with attached(tmp_path / "inner", cluster="lab") as (_, session):
            (tmp_path / "inner" / "checkpoints").mkdir(exist_ok=True)
            removal = pb.RemoveCheckpoints.Removal(number=3, job=job)
            session.send(pb.ToAgent(remove_checkpoints=pb.RemoveCheckpoints(removals=[removal])))
            handled = await session.until(
                lambda: next((m.checkpoints for m in session.received if m.HasField("checkpoints")), None)
            )
            assert (handled.through, list(handled.removed)) == (3, [])
            assert len(handled.kept[job]) < 300
            assert (tmp_path / "inner" / "checkpoints").is_dir()

    play(scene())
