"""Edits and time limits with real processes, across a scheduler that is killed in between."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from live_cluster import LiveCluster, completed, eventually, state_of

from gavel.client.errors import NoSuchJob, Refused
from gavel.client.requests import JobRequest


def test_edits_and_time_limits_hold_across_a_scheduler_that_is_killed(tmp_path: Path) -> None:
    with LiveCluster(tmp_path) as live, live.client() as client:
        live.start_agent("machine", "v100=1,k80=1")
        [edited] = client.submit(replace(live.counting("edited", steps=100_000), types=("v100",)))
        [limited] = client.submit(replace(live.counting("limited", steps=100_000), types=("k80",), time_limit="7s"))
        eventually(lambda: len(live.trail("edited").steps()) >= 5 and live.trail("limited").steps(), "both run")
        client.edit(edited, types=["k80"], weight=2)
        live.kill_scheduler()
        killed = time.monotonic()
        live.start_scheduler()
        absence = time.monotonic() - killed

        # It left the type that it may not use any more, and waits for the other.
        eventually(lambda: state_of(client, edited) in ("preempted", "queued"), "the edited job has left")
        request = client.job(edited).job.request
        assert (request.types, request.weight) == (("k80",), 2.0)

        # The time limit counts what ran before the restart, and the job saves before it ends.
        eventually(lambda: state_of(client, limited) == "failed", "the time limit is reached")
        view = client.job(limited).job
        assert (view.code, view.attempts >= 1) == ("time_limit", True)
        assert view.reason == "its time limit of 7s is reached; it was stopped at a checkpoint"
        assert 7.0 <= sum(view.received.values()) <= 9.0 + absence
        eventually(lambda: live.trail("limited").lines("end"), "it saves and leaves")
        saved = int(live.trail("limited").lines("end")[-1][2])
        eventually(lambda: client.job(limited).job.steps_done == saved, "what it saved is counted")

        # A new number of steps reaches the process, which continues where it was.
        eventually(lambda: client.job(edited).job.type == "k80", "the edited job runs on the other type")
        enough = int(client.job(edited).job.steps_done) + 25
        client.edit(edited, steps=enough)
        with pytest.raises(Refused, match="more than 1; give more steps"):
            client.edit(edited, steps=1)
        assert completed(client.wait(edited, timeout=60.0))
        trail = live.trail("edited").steps()
        assert trail[-1] == enough
        assert client.job(edited).job.steps_done == enough

        # What has finished stays as it is, and can be repeated.
        with pytest.raises(Refused, match=f"job {edited} has completed and cannot be changed"):
            client.edit(edited, name="late")
        with pytest.raises(NoSuchJob):
            client.edit("99", name="nothing")
        [again] = client.resubmit(limited, time_limit=None, steps=20)
        assert completed(client.wait(again, timeout=60.0))
        changes = [event.text for event in client.events(job=edited) if event.kind == "job_edited"]
        assert changes[0] == f"job {edited} was changed by you: weight 1 → 2, types v100 → k80"


def test_a_program_that_prints_is_not_idle_and_one_that_sleeps_is(tmp_path: Path) -> None:
    with LiveCluster(tmp_path) as live, live.client() as client:
        live.start_agent("machine", "v100=2")
        prints = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done"
        talks, sleeps = client.submit(
            [JobRequest(prints, idle_timeout="2s"), JobRequest("exec sleep 300", idle_timeout="2s", retries=3)]
        )
        done, idle = client.wait([talks, sleeps], timeout=60.0)
        assert (done.state.value, idle.state.value) == ("completed", "failed")
        assert (idle.code, idle.attempts, idle.failures) == ("idle_timeout", 1, 0)
        assert idle.reason == "it made no step and printed nothing for 2s, its idle timeout; it was stopped"
