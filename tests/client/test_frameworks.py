"""The examples with real frameworks: interrupted and resumed, they end with the weights of a run that was not."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework_stage import Stage, Start

from fake_agent import FakeAgent
from gavel.client.job_file import read_jobs
from needs import needs_frameworks, needs_torch

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 60
NEVER = -1
"""A step at which a rank that only others interrupt would be interrupted."""
LOADED = {
    "hf": ("transformers.trainer", "transformers.models.bert.modeling_bert", "gavel.hf"),
    "lightning_example": ("lightning.pytorch", "gavel.lightning"),
    "accelerate_example": ("accelerate", "torch.distributed"),
    "fsdp": ("torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"),
    "jax_example": (),  # JAX does not survive a fork
    "own loop": ("torch.distributed", "torch._dynamo"),
}


@pytest.fixture(scope="module")
def stages() -> Iterator[Callable[[str], Stage]]:
    opened: dict[str, Stage] = {}

    def of(name: str) -> Stage:
        if name not in opened:
            opened[name] = Stage(*LOADED[name])
        return opened[name]

    yield of
    for stage in opened.values():
        stage.close()


def final(start: Start) -> str:
    """The weights at the end; empty if the program did not come to its end."""
    found = re.findall(r"final .*weights (\w+)|final (\w+)", start.output_text())
    return "".join(found[0]) if found else ""


def alone(name: str, folder: Path, checkpoints: Path, **stop: object) -> Start:
    folder.parent.mkdir(exist_ok=True)
    environment = {"GAVEL_CHECKPOINT_DIR": str(checkpoints), "GAVEL_STEPS": str(STEPS)}
    arguments = ["--seed", "1", "--steps", str(STEPS)]
    return Start(str(EXAMPLES / f"{name}.py"), arguments, str(folder), environment, **stop)  # type: ignore[arg-type]


# Lightning's example has epochs of 16 steps, that of Hugging Face of 24: these stop in the middle and at the end.
@pytest.mark.parametrize(
    ("name", "stops"),
    [
        pytest.param("hf", (7, 24, 40), marks=needs_frameworks["transformers"]),
        pytest.param("lightning_example", (7, 16, 41), marks=needs_frameworks["lightning"]),
        pytest.param("accelerate_example", (7, 16, 41), marks=needs_frameworks["accelerate"]),
        pytest.param("jax_example", (7, 16, 41), marks=needs_frameworks["jax"]),
    ],
)
def test_interrupted_three_times_it_ends_with_the_same_weights(
    agent: FakeAgent, stages: Callable[[str], Stage], tmp_path: Path, name: str, stops: tuple[int, ...]
) -> None:
    running = stages(name)
    whole = alone(name, tmp_path / "whole", tmp_path / "of whole")
    running.run(whole)
    assert final(whole)
    for stop in stops[:-1]:
        run = alone(name, tmp_path / str(stop), tmp_path / "checkpoints", stop_at=stop)
        running.run(run)
        assert not final(run)  # the end of the program did not run on a model that is not trained
    under_gavel = alone(name, tmp_path / "last", tmp_path / "checkpoints", stop_at=stops[-1], holds=True)
    under_gavel.environment["GAVEL_SOCKET"] = agent.path
    running.begin(under_gavel)
    agent.expect("progress", steps=stops[-1])
    agent.send(op="stop")
    assert running.codes() == [0], under_gavel.output_text()
    agent.expect("stopped")
    agent.expect("gone")
    assert not final(under_gavel)
    resumed = alone(name, tmp_path / "resumed", tmp_path / "checkpoints")
    running.run(resumed)
    assert final(resumed) == final(whole)


def free_port() -> int:
    """A port that the system gives to no connection by itself, as it may take those that were free a moment ago."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def together(program: Path, folder: Path, checkpoints: Path, stop_at: int | None = None) -> list[Start]:
    """Two ranks as Gavel starts them; only rank 1 is interrupted."""
    master, gang = free_port(), free_port()
    folder.mkdir()
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master)}
    ours = {"GAVEL_WORLD_SIZE": "2", "GAVEL_GANG_ADDRESS": f"127.0.0.1:{gang}", "GAVEL_GANG_TOKEN": "a word"}
    shared = {**world, **ours, "GAVEL_CHECKPOINT_DIR": str(checkpoints), "GAVEL_STEPS": str(STEPS)}
    return [
        Start(
            str(program),
            [str(STEPS)] if program.parent != EXAMPLES else ["--seed", "1", "--steps", str(STEPS)],
            str(folder / rank),
            {**shared, "RANK": rank, "LOCAL_RANK": rank, "GAVEL_RANK": rank},
            stop_at if rank == "1" or stop_at is None else NEVER,
        )
        for rank in ("0", "1")
    ]


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        pytest.param("hf", 30, marks=needs_frameworks["transformers"]),
        pytest.param("lightning_example", 19, marks=needs_frameworks["lightning"]),
        pytest.param("accelerate_example", 19, marks=needs_frameworks["accelerate"]),
        pytest.param("fsdp", 19, marks=needs_torch),
    ],
)
def test_if_one_of_two_ranks_is_interrupted_both_leave_and_end_with_the_same_weights(
    no_gavel_around: None, stages: Callable[[str], Stage], tmp_path: Path, name: str, stop: int
) -> None:
    del no_gavel_around
    program = EXAMPLES / f"{name}.py"
    running = stages(name)
    whole = together(program, tmp_path / "whole", tmp_path / "of whole")
    running.run(*whole)
    first = together(program, tmp_path / "first", tmp_path / "checkpoints", stop)
    running.run(*first)
    assert not any(map(final, first))
    resumed = together(program, tmp_path / "resumed", tmp_path / "checkpoints")
    running.run(*resumed)
    assert final(resumed[0]) == final(whole[0]) != ""


@needs_torch
def test_ranks_with_their_own_loops_decide_together(
    no_gavel_around: None, stages: Callable[[str], Stage], tmp_path: Path
) -> None:
    del no_gavel_around
    program = Path(__file__).with_name("ddp_loop.py")
    running = stages("own loop")
    whole = together(program, tmp_path / "whole", tmp_path / "of whole")
    running.run(*whole)
    first = together(program, tmp_path / "first", tmp_path / "checkpoints", 23)
    running.run(*first)
    assert [start.output_text() for start in first] == ["left at 23\n"] * 2
    resumed = together(program, tmp_path / "resumed", tmp_path / "checkpoints")
    running.run(*resumed)
    assert {final(start) for start in (*resumed, *whole)} == {final(whole[0])}


@pytest.mark.parametrize("name", [name for name in LOADED if name != "own loop"])
def test_its_job_file_is_accepted_and_finds_its_program(name: str) -> None:
    (job,) = read_jobs(str(EXAMPLES / f"{name}.yaml"))
    assert Path(job.working_directory) == EXAMPLES
    assert any((EXAMPLES / part).is_file() for part in job.command)


@pytest.mark.parametrize(
    ("module", "library", "package"),
    [
        ("hf", "transformers", "'transformers[torch]'"),
        ("lightning", "lightning.pytorch.callbacks", "lightning"),
        ("torch", "torch", "torch"),
    ],
)
def test_a_framework_that_is_not_installed_is_named(module: str, library: str, package: str) -> None:
    program = f"import sys, gavel; sys.modules[{library!r}] = None; gavel.{module}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1].endswith(f"which is not installed; run: pip install {package}")
