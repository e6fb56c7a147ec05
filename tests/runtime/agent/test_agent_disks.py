"""Checkpoint directories of other jobs are never loaded, and full disks cost a job no retry."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agent_stage import attached, play, python, shell, start, stop

from gavel.runtime.agent.disks import why_full
from gavel.runtime.agent.ownership import MARKER, NotOursError, Owner, claim, remove
from gavel.wire import gavel_pb2 as pb

DONE, LEFT, CRASHED = pb.TaskEnded.DONE, pb.TaskEnded.LEFT, pb.TaskEnded.CRASHED
MINE = Owner("one", "7")

# ---- ownership ----


def test_a_new_directory_is_marked_with_cluster_job_and_time(tmp_path: Path) -> None:
    claim(tmp_path / "7", MINE, 1)
    document = json.loads((tmp_path / "7" / MARKER).read_text())
    assert (document["cluster"], document["job"]) == ("one", "7")
    assert document["made"] > 1.6e9
    assert [path.name for path in (tmp_path / "7").iterdir()] == [MARKER]


@pytest.mark.parametrize("attempt", [1, 2, 9])
def test_a_job_comes_back_to_its_own_directory(tmp_path: Path, attempt: int) -> None:
    claim(tmp_path, MINE, 1)
    (tmp_path / "step-000000001").mkdir()
    before = (tmp_path / MARKER).read_bytes()
    claim(tmp_path, MINE, attempt)
    assert (tmp_path / MARKER).read_bytes() == before


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("other", [Owner("two", "7"), Owner("one", "8")])
def test_the_directory_of_another_job_is_refused_at_any_attempt(tmp_path: Path, other: Owner, attempt: int) -> None:
    claim(tmp_path, other, 1)
    with pytest.raises(NotOursError) as refused:
        claim(tmp_path, MINE, attempt)
    for part in (str(tmp_path), f"job {other.job} of cluster {other.cluster}", "move it away", "--checkpoints"):
        assert part in str(refused.value)


def test_an_unmarked_directory_is_refused_to_a_new_job_and_adopted_by_a_later_attempt(tmp_path: Path) -> None:
    (tmp_path / "step-000000001").mkdir()
    with pytest.raises(NotOursError, match="nothing says whose it is"):
        claim(tmp_path, MINE, 1)
    assert not (tmp_path / MARKER).exists()
    claim(tmp_path, MINE, 2)
    with pytest.raises(NotOursError, match="belongs to job 7 of cluster one"):
        claim(tmp_path, Owner("two", "7"), 2)


def test_a_marker_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("{")
    with pytest.raises(NotOursError, match="nothing says whose"):
        claim(tmp_path, MINE, 2)


def test_without_a_cluster_id_nothing_is_checked(tmp_path: Path) -> None:
    (tmp_path / "anything").touch()
    claim(tmp_path, Owner("", "7"), 1)
    assert not (tmp_path / MARKER).exists()


def test_ranks_that_come_at_the_same_time_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        for claimed in [pool.submit(claim, tmp_path / "7", MINE, 1) for _ in range(64)]:
            claimed.result()
    assert [path.name for path in (tmp_path / "7").iterdir()] == [MARKER]


# ---- removing it ----


def filled(root: Path, owner: Owner = MINE) -> Path:
    """A checkpoint directory with something in it."""
    directory = root / owner.job
    claim(directory, owner, 1)
    (directory / "step-1" / "deep").mkdir(parents=True)
    (directory / "step-1" / "deep" / "weights").write_text("w")
    (directory / "notes").write_text("n")
    return directory


def test_a_jobs_own_directory_is_removed_and_again_is_no_error(tmp_path: Path) -> None:
    directory, other = filled(tmp_path), filled(tmp_path, Owner("one", "8"))
    assert remove(tmp_path, MINE)
    assert not directory.exists()
    assert other.is_dir()
    assert not remove(tmp_path, MINE)


@pytest.mark.parametrize("made_by", [Owner("two", "7"), None])
def test_directories_of_another_cluster_or_without_a_marker_are_not_removed(
    tmp_path: Path, made_by: Owner | None
) -> None:
    directory = filled(tmp_path, made_by or MINE)
    if made_by is None:
        (directory / MARKER).unlink()
    with pytest.raises(NotOursError, match="belongs to job 7 of cluster two" if made_by else "nothing says whose"):
        remove(tmp_path, MINE)
    assert (directory / "step-1" / "deep" / "weights").is_file()


@pytest.mark.parametrize("job", ["../7", "..", "", "/tmp", "7/step-1"])  # noqa: S108 - never touched
def test_nothing_outside_the_root_is_removed_whatever_the_job_is_called(tmp_path: Path, job: str) -> None:
    directory = filled(tmp_path)
    (tmp_path / "root").mkdir()
    with pytest.raises(NotOursError, match="cannot be identified"):
        remove(tmp_path / "root", Owner("one", job))
    assert directory.is_dir()


def test_nothing_is_removed_for_a_scheduler_that_names_no_cluster(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(NotOursError, match="cannot be identified"):
        remove(tmp_path, Owner("", "7"))


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    directory, elsewhere = filled(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("p")
    (directory / "latest").symlink_to(elsewhere)
    assert remove(tmp_path, MINE)
    assert not directory.exists()
    assert (elsewhere / "precious").is_file()
    directory.symlink_to(elsewhere)
    with pytest.raises(NotOursError, match="is a link"):
        remove(tmp_path, MINE)
    assert (elsewhere / "precious").is_file()


def test_a_removal_that_was_interrupted_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is the last file to go: until then the directory says whose it is."""
    directory = filled(tmp_path)
    removed: list[str] = []
    real = Path.unlink

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        removed.append(path.name)
        if path.name == MARKER:
            raise OSError(errno.EIO, "the disk is gone")
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(OSError, match="the disk is gone"):
        remove(tmp_path, MINE)
    assert [path.name for path in directory.iterdir()] == [MARKER]
    monkeypatch.undo()
    assert remove(tmp_path, MINE)
    assert not directory.exists()


def test_agents_that_share_a_directory_may_remove_it_at_the_same_time(tmp_path: Path) -> None:
    for _ in range(20):
        directory = filled(tmp_path)
        for number in range(30):
            (directory / f"step-{number}-more").mkdir()
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(remove, tmp_path, MINE) for _ in range(4)]:
                done.result()
        assert not directory.exists()


def test_a_job_does_not_begin_in_the_directory_of_another_cluster(tmp_path: Path) -> None:
    async def scene() -> None:
        directory = tmp_path / "checkpoints" / "1"
        claim(directory, Owner("first", "1"), 1)
        async with attached(tmp_path, cluster="second") as (_, session):
            session.send(start("1", shell(f"touch {tmp_path}/began")))
            end = await session.ended("1")
            assert (end.how, end.hopeless) == (CRASHED, True)
            assert f"{directory} belongs to job 1 of cluster first" in end.reason
            assert not (tmp_path / "began").exists()
            session.send(start("2", shell("exit 0")))
            assert (await session.ended("2")).how == DONE
            assert json.loads((tmp_path / "checkpoints" / "2" / MARKER).read_text())["cluster"] == "second"

    play(scene())


# ---- disks that are full ----

TRAINS = """
import os, sys
from gavel import GavelIterator
def save(folder):
    SAVE
steps = GavelIterator(range(100), load_checkpoint=lambda folder: None, save_checkpoint=save, epochs=1000)
print("running", flush=True)
while not steps.done:
    for batch in steps:
        __import__("time").sleep(0.001)
"""


def trains(save: str) -> list[str]:
    """A program that trains until it is asked to leave, and then saves in this way."""
    return [sys.executable, "-c", TRAINS.replace("SAVE", save)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("needs a small disk: run as a user who may mount one")
    try:
        yield disk
    finally:
        subprocess.run(["/bin/umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_checkpoint_refused_by_the_disk_costs_no_retry(tmp_path: Path, number: int) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(
                start("1", trains(f"raise RuntimeError('saving') from OSError({number}, os.strerror({number}))"))
            )
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.blameless, end.hopeless) == (CRASHED, True, False)
            assert end.reason.startswith("cannot write the checkpoint at step")
            assert f"to {tmp_path / 'checkpoints' / '1'}" in end.reason

    play(scene())


def test_a_checkpoint_that_fails_for_another_reason_costs_a_retry(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", trains("raise OSError(5, 'Input/output error')")))
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.blameless) == (CRASHED, False)

    play(scene())


def test_a_real_full_disk_costs_no_retry(tmp_path: Path, small_disk: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, checkpoints=small_disk, cluster="one") as (_, session):
            session.send(start("1", trains("(folder / 'x').write_bytes(b'x' * 1_000_000)")))
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.blameless) == (CRASHED, True)
            assert "No space left on device" in end.reason

    play(scene())


def test_a_full_disk_that_a_library_does_not_name_costs_no_retry(tmp_path: Path, small_disk: Path) -> None:
    save = (
        "os.system(f'dd if=/dev/zero of={folder}/x bs=64k 2>/dev/null'); raise RuntimeError('write failed') from None"
    )

    async def scene() -> None:
        async with attached(tmp_path, checkpoints=small_disk) as (_, session):
            session.send(start("1", trains(save)))
            await session.logged("1", "running")
            session.send(stop("1"))
            assert (await session.ended("1")).blameless

    play(scene())


def test_a_full_disk_costs_a_program_without_gavel_iterator_no_retry(tmp_path: Path, small_disk: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, checkpoints=small_disk) as (_, session):
            script = "import os; open(os.environ['GAVEL_CHECKPOINT_DIR'] + '/x', 'wb').write(b'x' * 1_000_000)"
            session.send(start("1", python(script)))
            end = await session.ended("1")
            assert (end.how, end.blameless) == (CRASHED, True)
            assert end.reason == f"exit code 1; its checkpoint directory {small_disk / '1'}: No space left on device"

    play(scene())


def test_a_checkpoint_directory_that_cannot_be_created_costs_no_retry(tmp_path: Path, small_disk: Path) -> None:
    async def scene() -> None:
        (small_disk / "all of it").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4096))
        async with attached(tmp_path, checkpoints=small_disk, cluster="one") as (_, session):
            session.send(start("1", shell("exit 0")))
            end = await session.ended("1")
            assert (end.how, end.blameless, end.hopeless) == (CRASHED, True, False)

    # The agent itself checks at its start that it may write there.
    play(scene())


def test_a_crash_is_excused_by_words_that_name_the_error_and_the_directory(tmp_path: Path) -> None:
    error = f"OSError: [Errno 28] No space left on device: '{tmp_path}/x'\n".encode()
    assert why_full(tmp_path, b"Traceback\n" + error) == "No space left on device"
    assert why_full(tmp_path, error.replace(os.fsencode(tmp_path), b"/elsewhere")) is None
    assert why_full(tmp_path, error + b"more\n" * 9) is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_for_logs_ends_no_job(tmp_path: Path, small_disk: Path) -> None:
    async def scene() -> None:
        logs = tmp_path / "state" / "logs"
        logs.parent.mkdir()
        logs.symlink_to(small_disk)
        async with attached(tmp_path) as (_, session):
            session.send(start("1", python("for n in range(20_000): print('line', n, 'x' * 40)")))
            end = await session.ended("1")
            assert (end.how, end.reason) == (DONE, "it ended with exit code 0")
            (small_disk / "1.1.0.log").unlink()
            session.send(start("2", python("print('seen')")))
            await session.logged("2", "seen")

    play(scene())


def test_a_disk_that_refuses_a_log_file_ends_no_job(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            (tmp_path / "state" / "logs").rmdir()
            session.send(start("1", shell("echo unseen")))
            assert (await session.ended("1")).how == DONE

    play(scene())
