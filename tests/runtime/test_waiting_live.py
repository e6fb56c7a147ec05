"""Hold, release, requeue, arrays and dependencies with real processes; the scheduler is killed in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_cluster import LiveCluster, completed, eventually, state_of

from gavel.client.errors import Refused
from gavel.client.requests import JobRequest

PATIENT: dict[str, object] = {"lease-slack-seconds": 40.0, "agent-timeout-seconds": 20.0}


def test_what_jobs_wait_for_outlives_the_scheduler_and_every_job_runs_in_the_end(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, PATIENT) as live, live.client() as client:
        live.start_agent("fast", "v100=2", time_scale=4.0)
        (job,) = client.submit(live.counting("long", steps=120))
        eventually(live.trail("long").steps, "it runs")
        (view,) = client.hold(job)
        assert (view.code, view.reason) == ("held", "held by you")
        eventually(lambda: live.trail("long").lines("end"), "it saves and leaves")
        short = live.counting("short", steps=2)
        ids = client.submit(
            [
                _with(short, name="sweep", array="0-2%1"),
                _with(short, name="report", after=("sweep",)),
                _with(short, name="after the held one", after=(f"{job}:any",)),
            ]
        )
        assert len(ids) == 5
        live.kill_scheduler()
        live.start_scheduler()
        views = client.wait(ids[:4], timeout=60)
        assert completed(views), live.everything()
        starts = [client.job(one).history[-1].time for one in ids[:4]]
        assert starts == sorted(starts), "one after the other, in order of index; the report last"
        assert state_of(client, job) == "preempted"
        assert client.job(ids[4]).job.code == "dependency"
        with pytest.raises(Refused, match=f"job {ids[4]} is not held by a user: it is queued, waits until job"):
            client.release([job, ids[4]])
        assert client.job(job).job.code == "held"
        client.release(job)
        eventually(lambda: len(live.trail("long").lines("begin")) == 2, "it continues")
        eventually(lambda: live.trail("long").steps("2"), "it makes steps")
        client.requeue(job)
        views = client.wait([job, ids[4]], timeout=60)
        assert completed(views), live.everything()
        assert views[0].attempts >= 3
        assert live.trail("long").steps() == list(range(1, 121)), "no step was lost or made twice"
        (late,) = client.submit(_with(short, after=(f"{ids[0]}:ok", "a2:ok")))
        assert completed(client.wait(late, timeout=60))
        with pytest.raises(Refused, match="can never start: array a2 has completed, and it waits until"):
            client.submit(_with(short, after=("a2:failed",)))


def _with(request: JobRequest, **changes: Any) -> JobRequest:
    return replace(request, **changes)
