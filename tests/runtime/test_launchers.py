"""Jobs with one process for each server, live: the real torchrun joins its ranks, which leave and resume together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from live_cluster import LiveCluster, completed, eventually

from gavel import Client
from gavel.client.requests import JobRequest
from needs import needs_torch

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
STEPS = {"spread": 250, "together": 60, "plain": 60}
"""By trail: the first is interrupted on its way."""

TRAIN = """
import os, sys
from pathlib import Path
from gavel import GavelIterator

rank, attempt = os.environ.get("RANK") or os.environ["GAVEL_NODE_RANK"], os.environ["GAVEL_ATTEMPT"]
trail = Path(sys.argv[1]).open("a", buffering=1)
told = " ".join(os.environ.get(name, "-") for name in ("LOCAL_RANK", "WORLD_SIZE", "GAVEL_NODE_RANK", "GAVEL_NODES"))
print(f"begin {attempt} {rank} {told} {os.getpid()}", file=trail)
if "gloo" in sys.argv and attempt == "1":
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    both = torch.tensor([float(rank) + 1])
    torch.distributed.all_reduce(both)
    print(f"sum {attempt} {rank} {both.item():g}", file=trail)
    torch.distributed.destroy_process_group()

def save(folder):
    print(f"save {attempt} {rank} {steps.step}", file=trail)
    (folder / "step").write_text(str(steps.step))

steps = GavelIterator(range(25), load_checkpoint=lambda folder: None, save_checkpoint=save)
while not steps.done:
    for _ in steps:
        print(f"step {attempt} {rank} {steps.step + 1}", file=trail)
print(f"end {attempt} {rank} {steps.step} {steps.preempted}", file=trail)
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    folder = tmp_path_factory.mktemp("launchers")
    (folder / "train.py").write_text(TRAIN)
    with LiveCluster(folder, {"lease-slack-seconds": 40.0, "checkpoint-grace-seconds": 30.0}) as cluster:
        for name, offer in (("one", "v100=1"), ("two", "v100=1"), ("three", "k80=3")):
            cluster.start_agent(name, offer)
        yield cluster


def torchrun(live: LiveCluster, trail: str, *more: str, **wanted: Any) -> JobRequest:
    command = (*TORCHRUN, *_script(live, trail), *more)
    request: dict[str, Any] = {
        "steps": STEPS[trail],
        "workers": 2,
        "template": "A3C",
        "launcher": "per-server",
        "command": command,
    }
    return JobRequest(**{**request, **wanted})


def _script(live: LiveCluster, trail: str) -> tuple[str, str]:
    return str(live.folder / "train.py"), str(live.folder / trail)


@needs_torch
def test_torchrun_needs_no_options_on_one_server_and_over_several(live: LiveCluster) -> None:
    with live.client() as client:
        spread, together = client.submit(
            [torchrun(live, "spread", "gloo", types=["v100"]), torchrun(live, "together", types=["k80"])]
        )
        _interrupt(live, client, spread)
        views = client.wait([spread, together], timeout=120)
        assert completed(views), live.everything()
        assert [view.steps_done for view in views] == [
            STEPS["spread"],
            STEPS["together"],
        ]  # counted once, not by each rank
        assert [view.exit_code for view in views] == [0, 0]
        assert [view.failures for view in views] == [0, 0]
        logs = [b"".join(client.logs(spread, rank=node)).decode() for node in (0, 1)]
    begun = live.trail("spread").lines("begin")
    assert sorted(fields[1:6] for fields in begun if fields[0] == "1") == [
        ["0", "0", "2", "0", "2"],
        ["1", "0", "2", "1", "2"],
    ]
    begun = live.trail("together").lines("begin")
    assert sorted(fields[1:6] for fields in begun) == [["0", "0", "2", "0", "1"], ["1", "1", "2", "0", "1"]]
    assert {fields[-1] for fields in live.trail("spread").lines("sum")} == {"3"}
    _assert_in_step(live, "spread", attempts=2)
    _assert_in_step(live, "together", attempts=1)
    assert all("Traceback" not in log for log in logs), logs


def _interrupt(live: LiveCluster, client: Client, job: str) -> None:
    """Restart the scheduler while a job runs, then make the job leave."""
    eventually(lambda: live.trail("spread").steps(rank="1"), "it runs")
    live.kill_scheduler()
    live.start_scheduler()
    eventually(lambda: client.job(job).job.steps_done > 5, "the scheduler hears of its steps")
    client.drain("two", now=True)
    eventually(lambda: live.trail("spread").lines("end"), "it leaves")
    client.undrain("two")


def _assert_in_step(live: LiveCluster, name: str, *, attempts: int) -> None:
    """All ranks end at the same step, only the first saves, and no step is made twice."""
    trail = live.trail(name)
    for rank in ("0", "1"):
        assert trail.steps(rank=rank) == list(range(1, STEPS[name] + 1)), live.everything()
    ends = trail.lines("end")
    assert len(ends) == 2 * attempts
    for attempt in map(str, range(1, attempts + 1)):
        assert len({tuple(fields[2:]) for fields in ends if fields[0] == attempt}) == 1
    assert {fields[1] for fields in trail.lines("save")} == {"0"}
    assert len(trail.lines("save")) == attempts


def test_a_process_for_each_server_has_its_accelerators_and_needs_no_program_that_starts_ranks(
    live: LiveCluster,
) -> None:
    place = '"$GAVEL_NODE_RANK of $GAVEL_NODES: $GAVEL_WORKERS_HERE of $GAVEL_WORKERS on $GAVEL_DEVICES ${RANK-none}"'
    with live.client() as client:
        k80: dict[str, Any] = {"types": ["k80"], "launcher": "per-server"}
        told, failing, plain = client.submit(
            [
                JobRequest(command=f"echo {place}", workers=3, **k80),
                JobRequest(command="exit 7", workers=2, retries=0, **k80),
                torchrun(live, "plain", types=["v100"], command=(sys.executable, *_script(live, "plain"))),
            ]
        )
        views = client.wait([told, failing, plain], timeout=60)
        assert b"".join(client.logs(told)) == b"0 of 1: 3 of 3 on 0,1,2 none\n", live.everything()
    ends = [(str(view.state), view.exit_code) for view in views]
    assert ends == [("completed", 0), ("failed", 7), ("completed", 0)]
    assert "exit code 7" in views[1].reason
    # Without a program that starts ranks, the processes of the servers are the ranks.
    assert views[2].steps_done == STEPS["plain"]
    _assert_in_step(live, "plain", attempts=1)
