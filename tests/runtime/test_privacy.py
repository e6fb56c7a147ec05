"""What services write is for their own user; what jobs write has the usual modes; secrets of jobs are not shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import LiveCluster, completed, eventually
from raw_peers import play, site

from gavel.client.requests import JobRequest
from gavel.runtime.privacy import open_to_others
from gavel.wire import gavel_pb2 as pb

HIDDEN_VALUE = "hunter2-5ecret"


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("usual_umask")
def test_services_write_for_their_own_user_and_jobs_with_the_usual_modes(tmp_path: Path) -> None:
    with LiveCluster(tmp_path) as cluster:
        cluster.start_agent("lab", "v100=1")
        script = "umask; echo saved > $GAVEL_CHECKPOINT_DIR/model; mkdir $GAVEL_CHECKPOINT_DIR/step"
        with cluster.client() as client:
            (job,) = client.submit(JobRequest(script, name="private", environment={"TOKEN": HIDDEN_VALUE}))
            eventually(lambda: completed([client.job(job).job]), cluster.everything())
            assert b"".join(client.logs(job)).strip() == b"0022"
        written = [*(tmp_path / "state").rglob("*"), *(tmp_path / "lab").rglob("*"), tmp_path / "state"]
        files = [path for path in [*written, tmp_path / "lab"] if path.is_file() or path.is_dir()]
        assert {"journal.sqlite", "journal.sqlite-wal", "identity.json", f"{job}.1.0.log"} <= {f.name for f in files}
        assert {oct(mode(path)) for path in files} <= {"0o600", "0o700"}
        kept = tmp_path / "checkpoints"
        modes = {path.name: oct(mode(path)) for path in [kept, *kept.rglob("*")]}
        assert modes == {
            "checkpoints": "0o755",
            job: "0o755",
            ".gavel-owner.json": "0o644",
            "model": "0o644",
            "step": "0o755",
        }
        assert HIDDEN_VALUE not in cluster.everything()


@pytest.mark.usefixtures("usual_umask")
def test_files_that_are_open_to_others_are_reported_at_start_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state" / "logs").mkdir(parents=True)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "old").write_text("")
    with LiveCluster(tmp_path) as cluster:
        cluster.start_agent("lab", "v100=1")
        said = f"{tmp_path / 'state' / 'logs'} is open to other users (mode 755)"
        eventually(lambda: said in (tmp_path / "scheduler.log").read_text(), said)
        said = f"{tmp_path / 'lab' / 'old'} is open to other users (mode 644)"
        eventually(lambda: said in (tmp_path / "lab.log").read_text(), said)
        assert mode(tmp_path / "state" / "logs") == 0o755
        assert mode(tmp_path / "lab" / "old") == 0o644


def test_a_closed_directory_protects_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o644)
    tmp_path.chmod(0o700)
    assert open_to_others(tmp_path) == []
    tmp_path.chmod(0o750)
    assert [sentence.split()[0] for sentence in open_to_others(tmp_path)] == [str(tmp_path), str(tmp_path / "file")]


def test_values_of_an_environment_go_to_agents_and_to_no_client(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agent = await here.agent("a")
            job = await here.submit(environment={"TOKEN": HIDDEN_VALUE})
            assert (await agent.hear("start")).request.environment["TOKEN"] == HIDDEN_VALUE
            told = [await here.stub.List(pb.JobQuery()), await here.stub.Describe(pb.DescribeRequest(id=job))]
            async for update in here.stub.Watch(pb.JobQuery()):
                told.append(update)
                if update.caught_up:
                    break
            events = [line async for line in here.stub.Events(pb.EventsRequest(routine=True))]
            told += [*events, await here.stub.Cancel(pb.CancelRequest(ids=[job]))]
            assert told[0].jobs[0].request.environment == {"TOKEN": "(hidden)"}
            (queued,) = [line for line in events if line.kind == "job_queued"]
            assert json.loads(queued.document)["fact"]["request"]["environment"] == {"TOKEN": "(hidden)"}
            assert not any(HIDDEN_VALUE.encode() in message.SerializeToString() for message in told)

    play(scene())
