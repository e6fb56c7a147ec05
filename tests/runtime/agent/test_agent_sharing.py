"""Which job gets which device, and when: jobs that wait for each other, pairs, gangs, and emulated pace."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from agent_stage import (
    LEAVES_WHEN_ASKED,
    LINK,
    Scheduler,
    Session,
    attached,
    play,
    python,
    running,
    settings_for,
    shell,
    start,
    stop,
    until,
)

from gavel.core.throughputs import builtin_table
from gavel.runtime.agent import emulated
from gavel.wire import gavel_pb2 as pb

PLACE = LINK + 'print("on", os.environ["GAVEL_DEVICES"]); hear("stop"); tell("stopped", steps=1)\n'
PACES = LINK + 'while True: print("pace", hear("pace")["rate"])\n'


async def device_of(session: Session, job: str, attempt: int = 1) -> int:
    """Wait until a job says on which device it is."""
    log = await session.logged(job, "\n", attempt=attempt)
    return int(log.split()[1])


def test_a_job_waits_for_the_one_that_leaves_its_device(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=1") as (_, session):
            session.send(start("old", python(LINK + 'print("on 0"); hear("stop"); print("saving"); time.sleep(0.3)')))
            await session.logged("old", "on 0")
            session.send(stop("old"))
            session.send(start("new", python(PLACE)))
            assert await device_of(session, "new") == 0
            assert (await session.ended("old")).how == pb.TaskEnded.LEFT
            kinds = [m.WhichOneof("message") for m in session.received if not m.HasField("log")]
            assert kinds.index("ended") < len(kinds) - 1 - kinds[::-1].index("started")

    play(scene())


def test_a_new_attempt_waits_for_the_end_of_the_old_one(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=2") as (_, session):
            session.send(start("1", python(LINK + 'print("on 0"); hear("stop"); print("saving"); time.sleep(0.3)')))
            await session.logged("1", "on 0")
            session.send(stop("1"))
            session.send(start("1", python(PLACE), attempt=2))
            await device_of(session, "1", attempt=2)
            assert session.endings("1"), "the second attempt began before the first had ended"

    play(scene())


def test_a_job_that_is_stopped_while_it_waits_never_begins(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=1") as (_, session):
            session.send(start("1", python(PLACE)))
            await device_of(session, "1")
            session.send(start("2", python(PLACE)))
            session.send(stop("2"))
            end = await session.ended("2")
            assert (end.how, end.reason) == (pb.TaskEnded.LEFT, "preempted, before it began")
            session.send(start("3", python(PLACE), lease_seconds=0.1))
            assert (await session.ended("3")).reason == "its lease ended, before it began"

    play(scene())


def test_more_ranks_than_the_server_has_is_an_error_of_the_order(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=1") as (_, session):
            session.send(start("1", python(PLACE), ranks=2, workers=2))
            session.send(start("2", python(PLACE), type="k80"))
            assert (await session.ended("1", rank=1)).reason == "server here has 1 accelerators of type v100, not 2"
            assert (await session.ended("2")).how == pb.TaskEnded.CRASHED

    play(scene())


def test_a_pair_shares_a_device_whichever_job_comes_first(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=2") as (_, session):
            session.send(start("a", python(PLACE), beside="b"))
            session.send(start("b", python(PLACE), beside="a"))
            assert await device_of(session, "a") == await device_of(session, "b")
            session.send(start("c", python(PLACE)))
            assert await device_of(session, "c") != await device_of(session, "a")

    play(scene())


def test_a_third_waits_until_one_of_a_pair_has_left(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=2") as (_, session):
            session.send(start("a", python(PLACE)))
            session.send(start("b", python(PLACE), beside="a"))
            await device_of(session, "b")
            session.send(start("c", python(PLACE), beside="a"))
            session.send(stop("b"))
            assert await device_of(session, "c") == await device_of(session, "a")
            assert session.endings("b")

    play(scene())


def test_a_process_for_a_server_shares_its_devices_and_gives_all_of_them_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            whole = {"ranks": 2, "workers": 2}
            waits = shell('echo "$GAVEL_DEVICES"; exec sleep 1000')
            session.send(start("a", waits, nodes=1, beside="b", **whole))
            assert await session.logged("a", "\n") == "0,1\n"
            session.send(start("b", waits, beside="a", **whole))
            assert [await session.logged("b", "\n", rank=rank) for rank in (0, 1)] == ["0\n", "1\n"]
            session.send(start("c", waits, nodes=1, **whole))
            for job, ranks in (("a", 1), ("b", 2)):
                assert session.log("c") == ""
                session.send(stop(job))
                for rank in range(ranks):
                    await session.ended(job, rank)
            assert await session.logged("c", "\n") == "0,1\n"

    play(scene())


RANKS = """
import json, os, socket
def connected(rank):
    link = socket.socket(socket.AF_UNIX)
    link.connect(os.environ["GAVEL_SOCKET"])
    def tell(op, **fields):
        link.sendall((json.dumps({"op": op, **fields}) + "\\n").encode())
    tell("hello", protocol=1, rank=rank)
    return link, tell
(link0, tell0), (link1, tell1) = connected(0), connected(1)
"""


def test_of_the_ranks_that_a_process_started_the_first_counts_the_steps(tmp_path: Path) -> None:
    script = """
for steps in (10, 20):
    for tell in (tell1, tell0):
        tell("progress", steps=steps if tell is tell0 else 99, saved=5, measured_steps=10, measured_seconds=2)
tell1("saved", steps=99); tell1("done", steps=99); tell0("done", steps=20)
"""

    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("a", python(RANKS + script), nodes=1, ranks=2, workers=2))
            end = await session.ended("a")
            assert (end.how, end.status.steps, end.status.saved_steps) == (pb.TaskEnded.DONE, 20, 5)
            beats = [message.heartbeat for message in session.received if message.WhichOneof("message") == "heartbeat"]
            measured = sum(status.measured_steps for beat in beats for status in beat.tasks)
            assert measured + end.status.measured_steps == 20

    play(scene())


@pytest.mark.parametrize(
    ("words", "reason", "blameless"),
    [
        ('tell1("failed", reason="mine"); tell0("failed", reason="rank 1 is gone")', "mine", False),
        (
            'tell0("failed", reason="a"); tell1("failed", reason="the disk is full", blameless=True)',
            "the disk is full",
            True,
        ),
    ],
)
def test_of_the_ranks_that_a_process_started_the_first_to_fail_says_why_unless_one_was_blocked(
    tmp_path: Path, words: str, reason: str, *, blameless: bool
) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            pause = "import time\n" + words.replace("; ", "; time.sleep(0.3); ") + "\nraise SystemExit(1)"
            session.send(start("a", python(RANKS + pause), nodes=1, ranks=2, workers=2))
            end = await session.ended("a")
            assert (end.how, end.reason, end.blameless) == (pb.TaskEnded.CRASHED, reason, blameless)

    play(scene())


def test_emulated_jobs_are_paced_by_the_table_and_by_their_neighbour(tmp_path: Path) -> None:
    async def scene() -> None:
        templates = [("ResNet-18 (batch size 16)", 1), ("A3C", 1)]
        table = builtin_table()
        alone = table.rates(templates, ["k80"])[:, 0, 0].tolist()
        _, _, shared = table.pairs(templates, ["k80"])
        accelerators, emulation = emulated("k80=1", time_scale=10)
        async with attached(tmp_path, accelerators=accelerators, emulation=emulation) as (_, session):
            requests = [{"template": template} for template, _ in templates]
            session.send(start("a", python(PACES), type="k80", request=requests[0]))
            await session.logged("a", f"pace {alone[0] * 10}\n")
            session.send(start("b", python(PACES), type="k80", beside="a", request=requests[1]))
            both = shared[1, :, 0] * 10
            await session.logged("a", f"pace {alone[0] * 10}\npace {both[0]}\n")
            await session.logged("b", f"pace {both[1]}\n")
            session.send(stop("a", at_once=True))
            await session.logged("b", f"pace {both[1]}\npace {alone[1] * 10}\n")

    play(scene())


GANG = (
    LINK
    + """
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
names += ["GAVEL_RANK", "GAVEL_DEVICES", "GAVEL_GANG_ADDRESS", "GAVEL_GANG_TOKEN"]
print(json.dumps({name: os.environ[name] for name in names}))
hear("stop")
"""
)


async def places(session: Session, job: str, ranks: range) -> list[dict[str, str]]:
    """Wait until all ranks of a gang have said what they were told."""
    return [json.loads(await session.logged(job, "\n", rank=rank)) for rank in ranks]


def test_a_gang_on_one_server_meets_at_ports_that_were_free(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=4") as (_, session):
            session.send(start("a", python(GANG), ranks=2, workers=2))
            session.send(start("b", python(GANG), ranks=2, workers=2))
            gangs = [await places(session, job, range(2)) for job in "ab"]
            for gang in gangs:
                assert [rank["RANK"] for rank in gang] == [rank["LOCAL_RANK"] for rank in gang] == ["0", "1"]
                assert {rank["WORLD_SIZE"] for rank in gang} == {rank["LOCAL_WORLD_SIZE"] for rank in gang} == {"2"}
                assert {rank["MASTER_ADDR"] for rank in gang} == {"127.0.0.1"}
                assert len({rank["GAVEL_GANG_ADDRESS"] for rank in gang}) == 1
                assert len({rank["GAVEL_GANG_TOKEN"] for rank in gang}) == 1
            everyone = gangs[0] + gangs[1]
            assert {rank["GAVEL_DEVICES"] for rank in everyone} == set("0123")
            assert len({rank["MASTER_PORT"] for rank in everyone}) == 2
            assert len({rank["GAVEL_GANG_TOKEN"] for rank in everyone}) == 2
            ports = {rank["MASTER_PORT"] for rank in everyone} | {
                rank["GAVEL_GANG_ADDRESS"].rpartition(":")[2] for rank in everyone
            }
            assert len(ports) == 4

    play(scene())


def test_ranks_on_other_servers_meet_the_first_where_it_said(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path / "one", address="10.1.2.3") as (_, one), attached(tmp_path / "two") as (_, two):
            one.send(start("a", python(GANG), ranks=1, workers=3))
            first = await one.started("a")
            assert first.master_address == "10.1.2.3"
            assert first.master_port != first.gang_port
            told: dict[str, Any] = {"master_address": "10.1.2.3"}
            told |= {name: getattr(first, name) for name in ("master_port", "gang_port", "gang_token")}
            two.send(start("a", python(GANG), first_rank=1, ranks=2, workers=3, **told))
            gang = await places(one, "a", range(1)) + await places(two, "a", range(1, 3))
            assert [rank["GAVEL_RANK"] for rank in gang] == ["0", "1", "2"]
            assert [rank["LOCAL_RANK"] for rank in gang] == ["0", "0", "1"]
            assert {rank["GAVEL_GANG_ADDRESS"] for rank in gang} == {f"10.1.2.3:{first.gang_port}"}
            assert {rank["MASTER_PORT"] for rank in gang} == {str(first.master_port)}
            assert {rank["GAVEL_GANG_TOKEN"] for rank in gang} == {first.gang_token}

    play(scene())


def test_the_token_of_a_gang_is_drawn_at_random_and_stays_when_the_scheduler_restarts(tmp_path: Path) -> None:
    def derived(job: str, first: pb.TaskStarted) -> str:
        known = f"{job}\0{first.attempt}\0{first.master_address}\0{first.master_port}\0{first.gang_port}"
        return hashlib.sha256(known.encode()).hexdigest()[:32]

    async def scene() -> None:
        async with attached(tmp_path, "v100=4") as (scheduler, session):
            session.send(start("a", python(GANG), ranks=2, workers=2))
            session.send(start("b", python(GANG), ranks=2, workers=2))
            first = {job: await session.started(job) for job in "ab"}
            assert len(first["a"].gang_token) == 32
            tokens = [first["a"].gang_token, first["b"].gang_token, *(derived(job, first[job]) for job in "ab")]
            assert len(set(tokens)) == 4
            await scheduler.vanish()
            await scheduler.appear()
            again = await scheduler.session()
            assert (await again.started("a")).gang_token == first["a"].gang_token

    play(scene())


def test_a_gang_whose_first_rank_is_at_an_older_agent_agrees_on_the_token_that_agent_derives(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            told = {"master_address": "10.1.2.3", "master_port": 1001, "gang_port": 1002}
            session.send(start("a", python(GANG), first_rank=1, ranks=1, workers=2, **told))
            (rank,) = await places(session, "a", range(1, 2))
            known = hashlib.sha256(b"a\x001\x0010.1.2.3\x001001\x001002").hexdigest()
            assert rank["GAVEL_GANG_TOKEN"] == known[:32]

    play(scene())


ONE_DIES = (
    LINK
    + """
if os.environ["RANK"] == "1":
    while not os.path.exists(os.environ["DIE"]): time.sleep(0.01)
    sys.exit(5)
print("running"); hear("stop"); print("asked")
"""
)


def test_the_rest_of_a_broken_gang_waits_for_the_scheduler(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            request = {"environment": {"DIE": str(tmp_path)}}
            session.send(start("a", python(ONE_DIES), ranks=2, workers=2, request=request))
            end = await session.ended("a", rank=1)
            assert (end.how, end.reason) == (pb.TaskEnded.CRASHED, "exit code 5")
            await session.logged("a", "running")
            await session.heartbeat()
            assert session.endings("a", rank=0) == []
            session.send(stop("a", at_once=True))
            assert (await session.ended("a", rank=0)).how == pb.TaskEnded.LEFT

    play(scene())


@pytest.mark.parametrize("dies", ["before the scheduler goes", "while it is away"])
def test_the_rest_of_a_broken_gang_is_stopped_if_there_is_no_scheduler(tmp_path: Path, dies: str) -> None:
    async def scene() -> None:
        flag = tmp_path / "die"
        async with Scheduler() as scheduler, running(settings_for(scheduler, tmp_path)) as (_, said):
            session = await scheduler.session()
            request = {"environment": {"DIE": str(flag)}}
            session.send(start("a", python(ONE_DIES), ranks=2, workers=2, request=request))
            await session.logged("a", "running")
            if dies == "before the scheduler goes":
                flag.touch()
                await session.ended("a", rank=1)
            await scheduler.vanish()
            flag.touch()
            await until(lambda: any("ended job a, rank 1" in sentence for sentence in said))
            await scheduler.appear()
            session = await scheduler.session()
            end = await session.ended("a", rank=0)
            assert (end.how, end.log_tail) == (pb.TaskEnded.LEFT, b"running\n")
            assert end.reason.startswith("another rank of its gang has crashed")

    play(scene())


def test_a_job_beside_another_gets_mps_on_real_accelerators(tmp_path: Path) -> None:
    async def scene() -> None:
        tools = tmp_path / "bin"
        tools.mkdir()
        control = tools / "nvidia-cuda-mps-control"
        control.write_text(f'#!/bin/sh\necho "$CUDA_MPS_PIPE_DIRECTORY $* $(cat)" >> {tmp_path}/calls\n')
        control.chmod(0o755)
        path = {"PATH": f"{tools}:/bin:/usr/bin"}
        script = 'echo "pipe=$CUDA_MPS_PIPE_DIRECTORY"; sleep 100'
        fields: dict[str, Any] = {"accelerators": {"v100": (0, 1)}, "emulation": None, "environment": path}
        pipe = tmp_path / "state" / "mps" / "pipe"
        async with attached(tmp_path, **fields) as (_, session):
            session.send(start("a", shell(script)))
            assert await session.logged("a", "\n") == "pipe=\n"
            assert not (tmp_path / "calls").exists()
            session.send(start("b", shell(script), beside="c"))
            session.send(start("c", shell(script), beside="b"))
            assert {await session.logged(job, "\n") for job in "bc"} == {f"pipe={pipe}\n"}
            assert (tmp_path / "calls").read_text() == f"{pipe} -d \n"
        assert (tmp_path / "calls").read_text() == f"{pipe} -d \n{pipe}  quit\n"

    play(scene())


def test_a_pair_runs_without_mps_where_it_is_not_installed(tmp_path: Path) -> None:
    async def scene() -> None:
        fields: dict[str, Any] = {
            "accelerators": {"v100": (0,)},
            "emulation": None,
            "environment": {"PATH": "/bin:/usr/bin"},
        }
        async with attached(tmp_path, **fields) as (_, session):
            session.send(start("a", python(LEAVES_WHEN_ASKED), beside="b"))
            session.send(start("b", python(LEAVES_WHEN_ASKED), beside="a"))
            await session.logged("a", "running")
            await session.logged("b", "running")

    play(scene())
