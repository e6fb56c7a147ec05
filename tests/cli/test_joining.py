"""`gavel worker --join`: enrols once, leaves no token behind, and needs no options afterwards."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gavel.cli.app import run
from gavel.cli.joining import TOKEN_VARIABLE
from gavel.runtime.agent.credentials import FILE
from secure_stage import TOKEN, SecureScheduler

LONGEST = 60.0
GAVEL = [sys.executable, "-c", "from gavel.cli.app import main; main()"]


async def worker(folder: Path, *options: str, given: str = "", **environment: str) -> asyncio.subprocess.Process:
    """Start an agent with emulated accelerators, as a process of its own."""
    here = [
        "--emulate",
        "v100=1",
        "--name",
        "lab1",
        "--state",
        str(folder / "state"),
        "--checkpoints",
        str(folder / "c"),
    ]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GAVEL_")}
    process = await asyncio.create_subprocess_exec(
        *(*GAVEL, "worker", *here, *options),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, **environment},
    )
    assert process.stdin is not None
    process.stdin.write(f"{given}\n".encode())
    process.stdin.close()
    return process


async def end(process: asyncio.subprocess.Process) -> str:
    """Stop an agent; returns what it said."""
    if process.returncode is None:
        process.terminate()
    return (await process.communicate())[1].decode()


def test_an_agent_that_has_not_joined_takes_no_orders_in_plaintext_from_beyond_its_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAVEL_INSECURE", raising=False)
    place = ["--state", str(tmp_path / "state"), "--checkpoints", str(tmp_path / "c"), "--name", "lab1"]
    assert run(["worker", "--scheduler", "192.0.2.1:7077", "--emulate", "v100=1", *place]) == 2
    assert "this agent has not joined the scheduler at 192.0.2.1:7077" in capsys.readouterr().err


def readable_by_jobs(pid: int) -> bytes:
    """What other processes of the same user can read about an agent."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


@pytest.mark.parametrize("way", ["option", "variable", "input"])
def test_the_token_is_neither_in_the_command_line_nor_in_the_environment_of_the_agent(tmp_path: Path, way: str) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            join = ["--join", scheduler.address, "--fingerprint", scheduler.authority.fingerprint]
            ways: dict[str, tuple[list[str], dict[str, Any]]] = {
                "option": (["--token", TOKEN], {}),
                "variable": ([], {TOKEN_VARIABLE: TOKEN}),
                "input": (["--token", "-"], {"given": TOKEN}),
            }
            options, others = ways[way]
            process = await worker(tmp_path, *join, *options, **others)
            assert (await scheduler.welcomed.get())[0].name == "lab1"
            seen = readable_by_jobs(process.pid)
            assert b"worker" in seen
            assert TOKEN.encode() not in seen
            assert "agent lab1 has enrolled at" in await end(process)
            again = await worker(tmp_path)
            assert (await scheduler.welcomed.get())[0].name == "lab1"
            assert TOKEN not in await end(again)
            assert [method for method, _, _ in scheduler.audited] == ["Enrol"]

    asyncio.run(asyncio.wait_for(scene(), LONGEST))


def test_an_agent_that_has_enrolled_says_so_and_continues(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            join = ["--join", scheduler.address, "--fingerprint", scheduler.authority.fingerprint, "--token", TOKEN]
            for said in ("has enrolled at", "has enrolled before"):
                process = await worker(tmp_path, *join)
                await scheduler.welcomed.get()
                assert said in await end(process)

    asyncio.run(asyncio.wait_for(scene(), LONGEST))


def test_a_wrong_fingerprint_ends_the_command_with_both(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            wrong = "sha256:" + "0" * 64
            process = await worker(tmp_path, "--join", scheduler.address, "--fingerprint", wrong, "--token", TOKEN)
            said = (await process.communicate())[1].decode()
            assert process.returncode == 2
            assert wrong in said
            assert scheduler.authority.fingerprint in said
            assert "someone may be in between" in said
            assert TOKEN not in said
            assert not (tmp_path / "state" / FILE).exists()

    asyncio.run(asyncio.wait_for(scene(), LONGEST))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--join", "head"], "--join needs --fingerprint"),
        (["--token", "gvj_x"], "need --join HOST:PORT"),
        (["--tls-cert", "a"], "need all of --tls-cert, --tls-key and --ca"),
        (["--tls-cert", "a", "--tls-key", "b", "--ca", "c", "--join", "head", "--fingerprint", "x"], "leave out"),
        (["--tls-cert", "a", "--tls-key", "b", "--ca", "/missing/ca"], "/missing/ca cannot be read"),
        (["--join", "127.0.0.1:1", "--fingerprint", "sha256:0", "--token", "gvj_x"], "is not a fingerprint"),
    ],
)
def test_options_that_cannot_work_are_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    here = ["--emulate", "v100=1", "--state", str(tmp_path / "s"), "--checkpoints", str(tmp_path / "c")]
    before = os.umask(0o022)
    try:
        assert run(["worker", *here, *options]) == 2
    finally:
        os.umask(before)
    assert sentence in capsys.readouterr().err
