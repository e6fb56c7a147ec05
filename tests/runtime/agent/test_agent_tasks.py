"""Tasks as the scheduler sees them: started, heard, asked to leave, made to leave."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agent_stage import (
    LEAVES_WHEN_ASKED,
    LINK,
    LONGEST,
    Scheduler,
    Session,
    attached,
    lease,
    play,
    python,
    running,
    runs,
    settings_for,
    shell,
    start,
    stop,
    until,
)

from gavel.runtime.agent.task import Graces, Task, TaskProgress
from gavel.wire import gavel_pb2 as pb

DONE, LEFT, CRASHED = pb.TaskEnded.DONE, pb.TaskEnded.LEFT, pb.TaskEnded.CRASHED
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, lambda *_: print('ignored'))\n"
WAITS = "while True: signal.pause()\n"
LIVES = LINK + 'print("running")\n' + WAITS


async def end_of(session: Session, script: str, *, asked: bool = False, at_once: bool = False) -> pb.TaskEnded:
    """Run a script, ask it to leave once it prints if so wanted, and wait for its end."""
    session.send(start("1", python(script)))
    if asked:
        await session.logged("1", "running")
        session.send(stop("1", at_once=at_once))
    return await session.ended("1")


def test_a_job_that_ends_with_0_is_done(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", shell("echo hello")))
            end = await session.ended("1")
            assert (end.how, end.log_tail) == (DONE, b"hello\n")
            assert await session.logged("1", "hello") == "hello\n"

    play(scene())


def test_a_job_that_is_asked_saves_and_leaves(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            end = await end_of(session, LEAVES_WHEN_ASKED, asked=True)
            assert (end.how, end.reason) == (LEFT, "preempted")
            assert (end.status.counts, end.status.steps, end.status.saved_steps) == (True, 7, 7)

    play(scene())


def test_the_first_steps_of_a_job_are_reported_without_waiting_for_the_next_heartbeat(tmp_path: Path) -> None:
    progress = 'tell("progress", steps=5, saved=0, measured_steps=4, measured_seconds=2.0)\n'

    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.heartbeat_seconds = 10 * LONGEST
            async with running(settings_for(scheduler, tmp_path)):
                session = await scheduler.session()
                session.send(start("1", python(LINK + progress + WAITS)))
                status = await session.status("1", lambda status: status.measured_steps > 0)
                assert (status.steps, status.measured_steps, status.measured_seconds) == (5, 4, 2.0)

    play(scene())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import sys; print('why'); sys.exit(3)", "exit code 3"),
        ("import os, signal; print('why'); os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal SIGSEGV"),
    ],
)
def test_a_crash_is_reported_in_words_with_the_end_of_the_log(tmp_path: Path, script: str, reason: str) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            end = await end_of(session, script)
            assert (end.how, end.reason, end.hopeless, end.log_tail) == (CRASHED, reason, False, b"why\n")

    play(scene())


def test_what_a_job_says_last_counts_more_than_its_exit_code(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            for number, (words, how) in enumerate(
                [
                    ('tell("done", steps=9); sys.exit(1)', DONE),
                    ('tell("failed", reason="the disk is full"); sys.exit(0)', CRASHED),
                    # A lease may end for the job a moment before it ends for the agent.
                    ('tell("stopped", steps=9); sys.exit(0)', LEFT),
                ]
            ):
                session.send(start(str(number), python(LINK + words)))
                end = await session.ended(str(number))
                assert end.how == how, words
            assert (await session.ended("1")).reason == "the disk is full"

    play(scene())


def test_a_job_that_fails_to_save_when_asked_has_crashed(tmp_path: Path) -> None:
    async def scene() -> None:
        script = LINK + 'print("running"); hear("stop"); tell("failed", reason="no space"); sys.exit(1)'
        async with attached(tmp_path) as (_, session):
            end = await end_of(session, script, asked=True)
            assert (end.how, end.reason) == (CRASHED, "no space")

    play(scene())


@pytest.mark.parametrize(
    "hello", ["", LINK.replace("protocol=1", "protocol=1, asks=False")], ids=["no hello", "only reports"]
)
def test_a_job_that_cannot_be_asked_gets_sigterm_and_may_save_then(tmp_path: Path, hello: str) -> None:
    script = """
import signal, sys
def leave(*_):
    print("saved"); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("running")
"""

    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            end = await end_of(session, hello + script + WAITS, asked=True)
            assert (end.how, end.log_tail) == (LEFT, b"running\nsaved\n")

    play(scene())


def test_a_job_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, terminate_grace=0.2) as (_, session):
            end = await end_of(session, IGNORES_SIGTERM + "print('running')\n" + WAITS, asked=True)
            assert (end.how, end.log_tail) == (LEFT, b"running\nignored\n")
            assert "SIGKILL" in end.reason

    play(scene())


@pytest.mark.parametrize(("own", "of_cluster"), [(0.2, 30.0), (30.0, 0.2)])
def test_a_job_with_its_own_grace_has_as_much_time_to_save_as_it_asked_for(
    tmp_path: Path, own: float, of_cluster: float
) -> None:
    script = LINK + 'print("running"); hear("stop"); time.sleep(1.0); print("saved"); tell("stopped", steps=7)'

    async def scene() -> None:
        async with attached(tmp_path, checkpoint_grace=of_cluster) as (_, session):
            session.send(start("1", python(script), request={"grace_seconds": own}))
            await session.logged("1", "running")
            session.send(stop("1"))
            assert ("saved" in (await session.ended("1")).log_tail.decode()) == (own > 1.0)

    play(scene())


@pytest.mark.parametrize("at_once", [False, True])
def test_a_job_with_its_own_grace_that_cannot_be_asked_has_it_after_sigterm(tmp_path: Path, *, at_once: bool) -> None:
    script = "trap 'echo asked; sleep 1; echo saved; exit 0' TERM; echo running; while :; do sleep 0.05; done"

    async def scene() -> None:
        async with attached(tmp_path, terminate_grace=0.2) as (_, session):
            session.send(start("1", shell(script), request={"grace_seconds": 30.0}))
            await session.logged("1", "running")
            session.send(stop("1"))
            await session.logged("1", "asked")
            if at_once:
                session.send(stop("1", at_once=True))
            end = await session.ended("1")
            assert end.how == LEFT
            assert ("saved" in end.log_tail.decode()) != at_once

    play(scene())


@pytest.mark.parametrize(("own", "kept"), [(None, 67.0), (5.0, 12.0)])
def test_a_guard_ends_a_job_after_its_lease_and_its_grace_even_if_the_agent_is_frozen(
    own: float | None, kept: float
) -> None:
    told: list[float] = []
    guarded: Any = SimpleNamespace(keep=told.append)
    task = Task(TaskProgress("1", 1, 0), (0,), cast(Any, None), Graces(60.0, 10.0), cast(Any, None), own)
    task._guarded = guarded
    task.keep(7.0)
    assert told == [kept]


def test_the_exit_code_of_a_job_is_reported_and_negative_for_a_signal(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            for number, (command, code) in enumerate([("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9)]):
                session.send(start(str(number), shell(command)))
                assert (await session.ended(str(number))).exit_code == code
            session.send(start("none", ["/no/such/command"]))
            assert not (await session.ended("none")).HasField("exit_code")

    play(scene())


def test_a_job_that_does_not_leave_when_asked_gets_sigterm(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, checkpoint_grace=0.2) as (_, session):
            end = await end_of(session, LIVES, asked=True)
            assert (end.how, end.reason) == (LEFT, "preempted (killed by signal SIGTERM)")

    play(scene())


def test_at_once_means_without_a_checkpoint(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            end = await end_of(session, LEAVES_WHEN_ASKED, asked=True, at_once=True)
            assert (end.how, end.log_tail) == (LEFT, b"running\n")

    play(scene())


def test_a_job_that_saves_is_ended_when_it_is_cancelled_meanwhile(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = LINK + 'print("running"); hear("stop"); print("saving")\n' + WAITS
            session.send(start("1", python(script)))
            await session.logged("1", "running")
            session.send(stop("1"))
            await session.logged("1", "saving")
            session.send(stop("1", at_once=True))
            assert (await session.ended("1")).how == LEFT

    play(scene())


def test_a_job_that_has_said_its_last_words_may_write_its_results(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = (
                LINK
                + """
tell("done", steps=9); lines.close(); link.close(); print("running")
while not os.path.exists(os.environ["GO"]): time.sleep(0.01)
print("results")
"""
            )
            session.send(start("1", python(script), request={"environment": {"GO": str(tmp_path / "go")}}))
            await session.logged("1", "running")
            session.send(stop("1"))
            await session.heartbeat()
            await session.heartbeat()
            (tmp_path / "go").touch()
            end = await session.ended("1")
            assert (end.how, end.log_tail) == (DONE, b"running\nresults\n")

    play(scene())


def alive(marker: str) -> list[str]:
    """Commands that run with this in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and marker.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "wait"])
def test_no_child_of_a_job_outlives_it(tmp_path: Path, end: str) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            marker = f"MARKER=of-{os.getpid()}-{end}"
            script = f"sleep 1000 & (setsid sleep 1000 &) & echo running; sleep 0.1; {end}"
            request = {"environment": dict([marker.split("=")])}
            session.send(start("1", shell(script), request=request))
            await session.logged("1", "running")
            if end == "wait":
                assert alive(marker)
                session.send(stop("1"))
            await session.ended("1")
            assert alive(marker) == []

    play(scene())


def test_a_job_does_not_outlive_its_guard(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            marker = f"MARKER=guard-{os.getpid()}"
            request = {"environment": dict([marker.split("=")])}
            session.send(start("1", shell("(setsid sleep 1000 &) & echo running; sleep 1000"), request=request))
            await session.logged("1", "running")
            [guard] = (tmp_path / "state" / "guards").iterdir()
            os.kill(int(guard.name), signal.SIGKILL)
            end = await session.ended("1")
            assert (end.how, end.reason) == (CRASHED, "killed by signal SIGKILL, perhaps out of memory")
            assert alive(marker) == []

    play(scene())


def test_what_can_never_start_is_hopeless_and_says_why(tmp_path: Path) -> None:
    async def scene() -> None:
        plain = tmp_path / "plain"
        plain.write_text("no program")
        script = tmp_path / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        async with attached(tmp_path) as (_, session):
            session.send(start("1", ["no-such-command-here", "x"]))
            session.send(start("2", ["./gone"], request={"working_directory": str(tmp_path)}))
            session.send(start("3", ["true"], request={"working_directory": str(tmp_path / "nowhere")}))
            session.send(start("4", [str(plain)]))
            session.send(start("5", []))
            session.send(start("6", [str(script)]))
            ends = [await session.ended(str(number)) for number in range(1, 7)]
            assert [(end.how, end.hopeless) for end in ends] == [(CRASHED, True)] * 6
            assert [end.reason for end in ends] == [
                "there is no command no-such-command-here",
                "there is no command ./gone",
                f"there is no working directory {tmp_path / 'nowhere'}",
                f"command {plain} may not be executed",
                "it has no command",
                f"cannot execute {script}: the interpreter in its first line does not exist",
            ]

    play(scene())


def test_a_job_knows_its_place_from_its_environment(tmp_path: Path) -> None:
    async def scene() -> None:
        inherited = {"PATH": os.environ["PATH"], "GAVEL_STATE": "x", "WORLD_SIZE": "8", "SLURM_PROCID": "3"}
        async with attached(tmp_path, environment=inherited) as (_, session):
            script = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
            request = {"steps": 500, "environment": {"MINE": "1"}, "working_directory": str(tmp_path)}
            session.send(start("job/1", python(script), attempt=3, request=request))
            told = json.loads(await session.logged("job/1", "}", attempt=3))
            expected = {
                "GAVEL_JOB_ID": "job/1",
                "GAVEL_ATTEMPT": "3",
                "GAVEL_STEPS": "500",
                "GAVEL_CHECKPOINT_DIR": str(tmp_path / "checkpoints" / "job%2F1"),
                "GAVEL_ACCELERATOR_TYPE": "v100",
                "GAVEL_RANK": "0",
                "GAVEL_WORLD_SIZE": "1",
                "GAVEL_DEVICES": "0",
                "CUDA_VISIBLE_DEVICES": "",
                "MINE": "1",
                "cwd": str(tmp_path),
            }
            assert told.items() >= expected.items()
            assert not {"GAVEL_STATE", "GAVEL_GANG_ADDRESS"} & set(told)
            # With these, Hugging Face and accelerate would wrap the model of a single process for a group.
            assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(
                told
            )
            assert "SLURM_PROCID" not in told
            assert len(told["GAVEL_SOCKET"]) <= 100
            assert 0 < float(told["GAVEL_LEASE_SECONDS"]) <= 60
            assert (tmp_path / "checkpoints" / "job%2F1").is_dir()

    play(scene())


def test_a_job_in_another_directory_finds_checkpoints_that_were_given_relative_to_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scene() -> None:
        async with attached(tmp_path, checkpoints=Path("relative")) as (_, session):
            told = 'test -d "$GAVEL_CHECKPOINT_DIR" && echo "$GAVEL_CHECKPOINT_DIR"'
            session.send(start("1", shell(told), request={"working_directory": "/"}))
            assert (await session.ended("1")).log_tail.decode() == f"{tmp_path}/relative/1\n"

    play(scene())


def test_real_accelerators_are_visible_by_their_numbers(tmp_path: Path) -> None:
    async def scene() -> None:
        indices = {"k80": (1,), "v100": (0, 2)}
        async with attached(tmp_path, accelerators=indices, emulation=None) as (_, session):
            script = (
                'echo $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $GAVEL_DEVICES; [ "$GAVEL_JOB_ID" = 3 ] || sleep 100'
            )
            for job, kind in (("1", "v100"), ("2", "v100"), ("3", "k80")):
                session.send(start(job, shell(script), type=kind))
            assert [await session.logged(job, "\n") for job in "123"] == ["0 0 0\n", "2 2 2\n", "1 1 1\n"]

    play(scene())


def test_jobs_see_the_devices_that_the_agent_was_given(tmp_path: Path) -> None:
    """In a Slurm allocation these are not the first ones of the server, or have UUIDs."""

    async def scene() -> None:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "3,GPU-5f3a"}
        indices = {"v100": (0, 1)}
        async with attached(tmp_path, accelerators=indices, emulation=None, environment=environment) as (_, session):
            for job in "12":
                session.send(start(job, shell("echo $CUDA_VISIBLE_DEVICES $GAVEL_DEVICES; sleep 100"), type="v100"))
            assert [await session.logged(job, "\n") for job in "12"] == ["3 0\n", "GPU-5f3a 1\n"]

    play(scene())


def test_progress_is_in_the_heartbeats_and_what_was_measured_is_said_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = (
                LINK
                + """
for steps in (10, 20):
    tell("progress", steps=steps, saved=5, measured_steps=10, measured_seconds=2)
tell("progress", steps="many", saved=-1, measured_steps=None)
link.sendall(b"nonsense\\n[1]\\n")
print("told"); hear("stop")
"""
            )
            session.send(start("1", python(script)))
            await session.logged("1", "told")
            status = await session.status("1", lambda status: status.steps == 20)
            assert (status.counts, status.saved_steps) == (True, 5)
            await session.heartbeat()
            await session.heartbeat()
            beats = [m.heartbeat.tasks[0] for m in session.received if m.HasField("heartbeat") and m.heartbeat.tasks]
            assert sum(beat.measured_steps for beat in beats) == 20
            assert sum(beat.measured_seconds for beat in beats) == 4

    play(scene())


def test_leases_reach_the_job_and_the_end_of_one_stops_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=2,k80=1") as (_, session):
            script = LINK + 'for _ in range(3): print("lease", hear("lease")["seconds"])\n'
            session.send(start("1", python(script + 'hear("stop"); tell("stopped", steps=1)'), lease_seconds=30))
            session.send(start("2", python(LEAVES_WHEN_ASKED), lease_seconds=30))
            await session.logged("1", "lease")
            await session.logged("2", "running")
            session.send(lease(40))
            session.send(lease(50, "1"))
            session.send(lease(10))  # leases are not made shorter
            log = await session.until(lambda: log if (log := session.log("1")).count("\n") == 3 else None)
            seconds = [float(line.split()[1]) for line in log.splitlines()]
            assert 20 < seconds[0] <= 30 < seconds[1] <= 40 < seconds[2] <= 50
            session.send(start("3", python(LEAVES_WHEN_ASKED), lease_seconds=0.3, type="k80"))
            end = await session.ended("3")
            assert (end.how, end.reason.split(" (")[0]) == (LEFT, "its lease ended")
            assert session.endings("1") == session.endings("2") == []

    play(scene())


def test_a_message_that_was_long_on_its_way_grants_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            at_hello = session.heard
            session.send(start("running", python(LEAVES_WHEN_ASKED), lease_seconds=30), heard=0)
            await session.logged("running", "running")
            session.send(start("late", shell("echo began"), lease_seconds=0.001), heard=at_hello)
            end = await session.ended("late")
            assert (end.how, end.reason) == (LEFT, "its lease ended, before it began")
            assert session.log("late") == ""

    play(scene())


def test_a_lease_does_not_hold_a_job_that_is_leaving(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = LINK + 'print("running"); hear("stop"); print("saving"); time.sleep(0.2); tell("stopped", steps=1)'
            session.send(start("1", python(script)))
            await session.logged("1", "running")
            session.send(stop("1"))
            await session.logged("1", "saving")
            session.send(lease(1000))
            assert (await session.ended("1")).how == LEFT

    play(scene())


# ---- the order of facts ----


async def ends_before_it_is_asked(session: Session, directory: Path, command: list[str]) -> pb.TaskEnded:
    """Have a job end by itself, which its guard finds out only after the order to stop it has come."""
    environment = {"GO": str(directory / "go")}
    session.send(start("1", command, request={"environment": environment}))
    pid = int((await session.logged("1", "\n")).split()[0])
    [guard] = [int(path.name) for path in (directory / "state" / "guards").iterdir()]
    os.kill(guard, signal.SIGSTOP)
    (directory / "go").touch()
    await until(lambda: not runs(pid))
    session.send(stop("1"))
    session.send(start("2", shell("exit 0")))  # orders are followed one after the other
    await session.ended("2")
    os.kill(guard, signal.SIGCONT)
    return await session.ended("1")


ENDS_ALONE = "while not os.path.exists(os.environ['GO']): time.sleep(0.01)\n"


@pytest.mark.parametrize("link", ["import os, sys, time\n", LINK], ids=["without a link", "with a link"])
def test_a_job_that_ended_with_0_before_it_was_asked_is_done(tmp_path: Path, link: str) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            command = python(link + "print(os.getpid())\n" + ENDS_ALONE)
            end = await ends_before_it_is_asked(session, tmp_path, command)
            assert (end.how, end.reason) == (DONE, "it ended with exit code 0")

    play(scene())


def test_a_job_that_crashed_before_it_was_asked_has_crashed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            command = python("import os, sys, time\nprint(os.getpid())\n" + ENDS_ALONE + "sys.exit(3)")
            end = await ends_before_it_is_asked(session, tmp_path, command)
            assert (end.how, end.reason) == (CRASHED, "exit code 3")

    play(scene())


def test_a_job_that_heard_the_order_and_ended_without_a_word_has_left(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            end = await end_of(session, LINK + 'print("running"); hear("stop"); sys.exit(0)', asked=True)
            assert (end.how, end.reason) == (LEFT, "preempted")

    play(scene())


def test_a_job_that_said_done_before_it_was_asked_is_done(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            command = python(LINK + "print(os.getpid())\n" + ENDS_ALONE + "tell('done', steps=5)")
            end = await ends_before_it_is_asked(session, tmp_path, command)
            assert (end.how, end.status.steps) == (DONE, 5)

    play(scene())


def test_an_end_is_told_before_the_rest_of_the_log(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", python("print('x' * 3_000_000); print('last')")))
            log = await session.logged("1", "last")
            assert len(log) == 3_000_000 + 1 + len("last\n")
            kinds = [message.WhichOneof("message") for message in session.received]
            assert "log" in kinds[kinds.index("ended") :]
            assert (await session.ended("1")).log_tail.endswith(b"last\n")

    play(scene())


def test_the_rest_of_a_log_comes_again_if_it_may_not_have_been_heard(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (scheduler, session):
            session.acknowledges = False
            for job in "12":
                session.send(start(job, shell("echo all")))
            for job in "12":
                await session.logged(job, "all")
                await session.ended(job)
            session.hang_up()
            again = await scheduler.session()
            for job in "12":
                assert await again.logged(job, "all") == "all\n"

    play(scene())


OWN_LOOP = """
import os, sys, time
import gavel
step = 0
while not gavel.should_leave():
    step += 1
    gavel.report(step, saved=step)
    if step == 3: print("running")
    time.sleep(0.001)
print("leaving")
"""


def importing(script: str) -> list[str]:
    """Make a command of a script that imports Gavel."""
    return [sys.executable, "-u", "-c", script]


@pytest.mark.parametrize(
    ("ending", "how"),
    [("", LEFT), ("sys.exit(3)", LEFT), ("os._exit(0)", LEFT), ("gavel.finished()", DONE)],
)
def test_a_program_with_its_own_loop_has_the_whole_grace_and_has_left_unless_it_is_finished(
    tmp_path: Path, ending: str, how: pb.TaskEnded.How
) -> None:
    async def scene() -> None:
        async with attached(tmp_path, terminate_grace=0.1) as (_, session):
            session.send(start("1", importing(OWN_LOOP + "time.sleep(0.5)\n" + ending)))
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.log_tail) == (how, b"running\nleaving\n")
            assert end.status.saved_steps >= 3

    play(scene())


@pytest.mark.parametrize(("program", "to"), [(OWN_LOOP, "job"), (OWN_LOOP + "os._exit(0)", "job"), (OWN_LOOP, "guard")])
def test_a_program_that_gets_sigterm_from_elsewhere_has_left_and_says_why(
    tmp_path: Path, program: str, to: str
) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", importing("import os; print(os.getpid(), os.getppid())\n" + program)))
            said = await session.logged("1", "running")
            pid, guard = map(int, said.split()[:2])
            os.kill(pid if to == "job" else guard, signal.SIGTERM)
            end = await session.ended("1")
            assert (end.how, end.reason) == (LEFT, "it got SIGTERM")

    play(scene())


def test_an_order_that_the_program_never_looked_at_does_not_undo_its_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = "import gavel, time\ngavel.should_leave(); print('running')\ntime.sleep(0.5)"
            session.send(start("1", importing(script)))
            await session.logged("1", "running")
            session.send(stop("1"))
            assert (await session.ended("1")).how == DONE
            session.send(start("2", importing(script + "\nraise SystemError")))
            await session.logged("2", "running")
            session.send(stop("2"))
            assert (await session.ended("2")).how == LEFT

    play(scene())


def test_a_job_that_begins_to_ask_after_its_first_report_has_the_whole_grace(tmp_path: Path) -> None:
    script = "import gavel\ngavel.report(1)\n" + OWN_LOOP + "time.sleep(0.5); print('saved')"

    async def scene() -> None:
        async with attached(tmp_path, terminate_grace=0.1) as (_, session):
            session.send(start("1", importing(script)))
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.log_tail) == (LEFT, b"running\nleaving\nsaved\n")

    play(scene())
