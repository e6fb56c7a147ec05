"""The live system with real processes: whatever is killed, nothing is lost and nothing runs twice."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from live_cluster import LiveCluster, alive, completed, eventually, signal_process, state_of

from gavel import Client
from gavel.client.requests import JobRequest
from gavel.journal.database import sqlite_url
from gavel.journal.queries import open_read_only
from gavel.runtime.configuration import Configurator, ServeSettings
from gavel.runtime.recovery import apply, recover
from gavel.runtime.state import ClusterState


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as cluster:
        yield cluster
        print(cluster.everything())  # shown if the test fails


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[LiveCluster]:
    """Where jobs are preempted often, also those that are nearly done."""
    with LiveCluster(tmp_path, {"mechanism": "plain"}) as cluster:
        yield cluster
        print(cluster.everything())


def test_more_jobs_than_accelerators_take_turns_and_all_complete(restless: LiveCluster) -> None:
    live = restless
    live.start_agent("fast", "v100=1", time_scale=4.0)
    live.start_agent("slow", "k80=1", time_scale=4.0)
    with live.client() as client:
        ids = client.submit([live.counting(f"trail{n}", steps=150) for n in range(4)])
        views = client.wait(ids, timeout=120)
        assert completed(views), views
        assert all(view.steps_done == 150 for view in views)
        assert b"hello from the job" in b"".join(client.logs(ids[0]))
    for number in range(4):
        trail = live.trail(f"trail{number}")
        # Every step was made exactly once, whichever job was preempted when.
        assert trail.steps() == list(range(1, 151))
    assert any(view.attempts > 1 for view in views)


def test_running_jobs_do_not_notice_that_the_scheduler_was_killed(tmp_path: Path) -> None:
    patient: dict[str, object] = {
        "lease-slack-seconds": 40.0,
        "agent-timeout-seconds": 20.0,
    }  # however long a start takes here
    with LiveCluster(tmp_path, patient) as live, live.client() as client:
        live.start_agent("fast", "v100=2")
        ids = client.submit([live.counting(f"trail{n}", steps=120) for n in range(2)])
        eventually(lambda: live.trail("trail0").steps() and live.trail("trail1").steps(), "both run")
        live.kill_scheduler()
        before = len(live.trail("trail0").steps())
        eventually(lambda: len(live.trail("trail0").steps()) > before, "it continues without a scheduler")
        live.start_scheduler()
        views = client.wait(ids, timeout=120)
        assert completed(views), views
        assert [view.attempts for view in views] == [1, 1], live.everything()
        assert live.trail("trail0").steps() == list(range(1, 121))


def test_a_scheduler_that_stays_away_finds_jobs_stopped_at_a_checkpoint_and_they_resume(live: LiveCluster) -> None:
    live.start_agent("fast", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=150))
        eventually(live.trail("trail").steps, "it runs")
        live.kill_scheduler()
        eventually(lambda: live.trail("trail").lines("end"), "its lease ends")
        live.start_scheduler()
        (view,) = client.wait(job, timeout=120)
    assert completed([view]), view
    assert view.failures == 0
    assert live.trail("trail").steps() == list(range(1, 151))


def test_a_job_finished_while_the_scheduler_was_away_is_completed_and_not_run_again(live: LiveCluster) -> None:
    live.start_agent("fast", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=30))
        eventually(live.trail("trail").steps, "it runs")
        live.kill_scheduler()
        eventually(lambda: live.trail("trail").lines("end"), "it ends")
        live.start_scheduler()
        (view,) = client.wait(job, timeout=120)
    assert completed([view]), view
    assert live.trail("trail").steps() == list(range(1, 31))


def test_jobs_of_a_killed_agent_leave_no_process_and_complete_elsewhere(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=40))
        eventually(live.trail("trail").steps, "it runs")
        live.agents["one"].kill()
        (pid,) = live.trail("trail").pids()
        eventually(lambda: not alive(pid), "the job ends with its agent")
        live.start_agent("two", "v100=1")
        (view,) = client.wait(job, timeout=120)
    assert completed([view]), view
    assert view.failures == 0
    assert live.trail("trail").steps("2")[-1] == 40


def test_a_killed_job_is_run_again_from_its_checkpoint_and_its_failure_is_told(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=40))
        eventually(live.trail("trail").steps, "it runs")
        signal_process(live.trail("trail").pids()[0], signal.SIGKILL)
        (view,) = client.wait(job, timeout=120)
        history = client.job(job).history
    assert completed([view]), view
    assert view.failures == 1
    assert any("SIGKILL" in turn.reason for turn in history), history


def test_when_one_rank_is_killed_the_gang_stops_and_all_ranks_resume_together(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    live.start_agent("two", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=60, workers=2))
        trail = live.trail("trail")
        eventually(lambda: trail.steps(rank="0") and trail.steps(rank="1"), "both ranks run")
        follower = next(int(fields[-1]) for fields in trail.lines("begin") if fields[1] == "1")
        signal_process(follower, signal.SIGKILL)
        (view,) = client.wait(job, timeout=120)
    assert completed([view]), view
    assert view.failures == 1
    assert trail.steps("2", "0") == trail.steps("2", "1")
    assert trail.steps("2", "0")[-1] == 60


def test_only_rank_0_of_a_gang_has_the_key_of_the_certificate_that_all_trust(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    live.start_agent("two", "v100=1")
    script = 'cat "$GAVEL_GANG_CERTIFICATE"; env'
    with live.client() as client:
        (job,) = client.submit(JobRequest(script, workers=2))
        (view,) = client.wait(job, timeout=120)
        logs = [b"".join(client.logs(job, rank=rank)) for rank in (0, 1)]
    assert completed([view]), view
    end = b"-----END CERTIFICATE-----"
    assert end in logs[0]
    assert logs[0].split(end)[0] == logs[1].split(end)[0]
    assert [log.count(b"BEGIN PRIVATE KEY") for log in logs] == [1, 0]
    assert b"PRIVATE KEY" not in live.everything().encode()


def test_the_ranks_of_a_gang_stop_at_the_same_step_when_they_are_preempted(restless: LiveCluster) -> None:
    live = restless
    live.start_agent("one", "v100=1")
    live.start_agent("two", "v100=1")
    with live.client() as client:
        trail = live.trail("gang")
        gang = client.submit(live.counting("gang", steps=300, workers=2))
        eventually(trail.steps, "it runs")
        others = client.submit([live.counting(f"other{n}", steps=60) for n in range(3)])
        views = client.wait([*gang, *others], timeout=180)
    assert completed(views), views
    assert views[0].attempts > 1, "it was never preempted"
    for attempt in {fields[0] for fields in trail.lines("begin")}:
        assert trail.steps(attempt, "0") == trail.steps(attempt, "1")
    assert sorted(trail.steps()) == list(range(1, 301))


def test_an_agent_that_freezes_and_comes_back_does_no_harm(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=100))
        eventually(live.trail("trail").steps, "it runs")
        live.agents["one"].send_signal(signal.SIGSTOP)
        eventually(lambda: state_of(client, job) != "running", "the agent is missed")
        live.start_agent("two", "v100=1")
        eventually(lambda: len(live.trail("trail").pids()) > 1, "it runs elsewhere")
        first, second = live.trail("trail").pids()[:2]
        assert not alive(first), "two attempts at once"
        live.agents["one"].send_signal(signal.SIGCONT)
        (view,) = client.wait(job, timeout=120)
        eventually(lambda: len(client.cluster().servers) == 2, "it is back")
    assert completed([view]), view
    assert second != first
    assert sorted(set(live.trail("trail").steps())) == list(range(1, 101))


def test_a_job_that_knows_nothing_of_leases_ends_with_its_lease_though_its_agent_is_frozen(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    pids = live.folder / "pids"
    with live.client() as client:
        (job,) = client.submit(JobRequest(f"echo $$ >> {pids}; exec sleep 1000"))
        eventually(lambda: pids.exists() and pids.read_text(), "it runs")
        live.agents["one"].send_signal(signal.SIGSTOP)
        live.start_agent("two", "v100=1")
        eventually(lambda: len(pids.read_text().split()) == 2, "it runs elsewhere")
        assert not alive(int(pids.read_text().split()[0])), "two attempts at once"
        client.cancel(job)


def test_a_job_that_ignores_sigterm_and_forks_is_ended_with_all_its_children(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    pids = live.folder / "pids"
    script = f"trap '' TERM; echo $$ >> {pids}; (trap '' TERM; setsid sleep 1000) & echo $! >> {pids}; wait"
    with live.client() as client:
        (stubborn,) = client.submit(JobRequest(script))
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, "it runs")
        (other,) = client.submit(live.counting("trail", steps=20))
        client.cancel(stubborn)
        views = client.wait([stubborn, other], timeout=120)
    assert [view.state.value for view in views] == ["cancelled", "completed"], views
    eventually(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "no child is left")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (JobRequest(["no-such-program"]), "no-such-program"),
        (JobRequest(["true"], working_directory="/no/such/folder"), "/no/such/folder"),
        (JobRequest("echo the last words; exit 7", retries=1), "7"),
    ],
    ids=["no command", "no folder", "exit code"],
)
def test_a_job_that_cannot_work_is_failed_with_a_reason(live: LiveCluster, request_: JobRequest, said: str) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        bad, good = client.submit([request_, live.counting("trail", steps=20)])
        views = client.wait([bad, good], timeout=120)
    assert [view.state.value for view in views] == ["failed", "completed"], views
    assert said in views[0].reason


def test_a_full_checkpoint_disk_is_told_and_costs_no_retry(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    program = live.folder / "full.py"
    program.write_text(
        "from gavel import GavelIterator\n"
        "def save(folder):\n"
        "    raise OSError(28, 'No space left on device')\n"
        "steps = GavelIterator(range(10), load_checkpoint=print, save_checkpoint=save)\n"
        "while not steps.done:\n"
        "    for _ in steps: pass\n"
    )
    with live.client() as client:
        (job,) = client.submit(JobRequest([sys.executable, str(program)], steps=5, retries=0))
        eventually(lambda: client.job(job).job.attempts > 1, "it is tried again")
        eventually(lambda: "No space left" in client.job(job).job.reason, "the reason is told")
        view = client.job(job).job
    assert view.failures == 0
    assert "costs no retry" in view.reason


def test_a_job_too_large_for_the_cluster_waits_with_a_reason_and_others_run(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        large, small = client.submit([live.counting("large", steps=10, workers=5), live.counting("small", steps=10)])
        client.wait(small, timeout=120)
        view = client.job(large).job
        assert view.state.value == "queued"
        assert "5 workers" in view.reason
        assert client.cancel(large)[0].state.value == "cancelled"


def test_a_second_agent_with_the_same_name_is_told_so(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        eventually(lambda: client.cluster().servers, "the first is there")
        live.start_agent("two", "k80=1", called="one")
        eventually(lambda: "--name" in (live.folder / "two.log").read_text(), "the second is told")
        assert [server.type for server in client.cluster().servers] == ["v100"]


def test_two_jobs_share_an_accelerator_where_the_table_says_that_it_pays(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, {"space-sharing": True, "mechanism": "plain"}) as live, live.client() as client:
        live.start_agent("one", "v100=1")
        ids = client.submit([live.counting(f"trail{n}", steps=150) for n in range(2)])
        eventually(lambda: {job.beside for job in client.jobs(ids=ids)} == set(ids), "they run side by side")
        views = client.wait(ids, timeout=120)
    assert completed(views), views
    for number in range(2):
        assert live.trail(f"trail{number}").steps() == list(range(1, 151))


def test_a_drained_agent_gives_its_jobs_away(live: LiveCluster) -> None:
    live.start_agent("one", "v100=1")
    with live.client() as client:
        (job,) = client.submit(live.counting("trail", steps=100))
        eventually(live.trail("trail").steps, "it runs")
        live.start_agent("two", "k80=1", time_scale=5.0)
        eventually(lambda: len(client.cluster().servers) == 2, "both are there")
        assert client.drain("one").jobs == (job,)
        (view,) = client.wait(job, timeout=120)
    assert completed([view]), view
    assert view.failures == 0
    assert set(view.received) == {"v100", "k80"}
    assert live.trail("trail").steps() == list(range(1, 101))


def test_time_received_on_each_type_follows_the_allocation(tmp_path: Path) -> None:
    """With the mechanism of the paper, which takes turns each round; credits leave jobs alone for longer than this."""
    rounds, seconds = 36, 1.0
    options: dict[str, object] = {"round-seconds": seconds, "mechanism": "plain"}
    with LiveCluster(tmp_path, options) as live, live.client() as client:
        live.start_agent("fast", "v100=1")
        live.start_agent("slow", "k80=1")
        templates = ("A3C", "Transformer (batch size 64)", "ResNet-50 (batch size 32)")
        ids = client.submit([live.counting(f"t{n}", steps=10**9, template=name) for n, name in enumerate(templates)])
        meant: dict[tuple[str, str], list[float]] = {}

        def many_rounds_have_passed() -> bool:
            """Rates are learned, so shares change: what is received is compared with what they were on average."""
            for job in map(client.job, ids):
                for kind in ("v100", "k80"):
                    meant.setdefault((job.job.id, kind), []).append(job.shares.get(kind, 0.0))
            time.sleep(seconds)
            return _received(client, ids) >= 2 * rounds * seconds

        eventually(many_rounds_have_passed, "many rounds have passed", seconds=400)
        for job in map(client.job, ids):
            present = client.cluster().time - job.job.submitted
            for kind in ("v100", "k80"):
                share, target = job.job.received.get(kind, 0.0) / present, mean(meant[job.job.id, kind])
                assert share == pytest.approx(target, abs=0.12), (job.job.id, kind)


def _received(client: Client, ids: list[str]) -> float:
    return sum(sum(job.received.values()) for job in client.jobs(ids=ids))


def test_the_journal_of_a_live_run_replayed_through_the_core_gives_the_state_that_was_kept(live: LiveCluster) -> None:
    live.start_agent("fast", "v100=1", time_scale=4.0)
    live.start_agent("slow", "k80=1", time_scale=4.0)
    with live.client() as client:
        ids = client.submit([live.counting(f"trail{n}", steps=100, workers=1 + n % 2) for n in range(4)])
        eventually(lambda: live.trail("trail0").steps(), "it runs")
        live.kill_scheduler()
        live.start_scheduler()
        client.wait(ids[::2], timeout=120)
    assert live.scheduler is not None
    live.scheduler.terminate()
    live.scheduler.wait()
    assert told_again(live, ServeSettings(round_seconds=1.0)) > 10


def told_again(live: LiveCluster, settings: ServeSettings) -> int:
    """Apply the facts of a journal one by one; returns how many there are.

    The result is the state that was kept when the scheduler stopped, and the one that a restart recovers.
    """
    configurator = Configurator(settings.scheduling)
    with open_read_only(sqlite_url(live.folder / "state" / "journal.sqlite")) as journal:
        entries, kept = list(journal.facts()), journal.latest()
        recovered = recover(journal, configurator)
    state = ClusterState(configurator)
    for entry in entries:
        apply(state, entry.document)
    assert kept is not None
    assert json.loads(json.dumps(state.document())) == kept[1]
    assert json.loads(json.dumps(recovered.document())) == kept[1]
    return len(entries)


# ---- during a round ----

LONG_ROUND_SECONDS = 60.0


@pytest.fixture
def unhurried(tmp_path: Path) -> Iterator[LiveCluster]:
    """Rounds so long that what happens soon cannot be the next one."""
    with LiveCluster(tmp_path, {"round-seconds": LONG_ROUND_SECONDS}) as cluster:
        yield cluster
        print(cluster.everything())


def test_a_job_submitted_during_a_round_starts_on_an_idle_accelerator_at_once(
    unhurried: LiveCluster, record_property: Callable[[str, object], None]
) -> None:
    live = unhurried
    live.start_agent("one", "v100=8")
    with live.client() as client:
        client.submit(live.counting("first", steps=10**6))
        eventually(live.trail("first").steps, "it runs")
        round_ends = client.cluster().round_ends
        running: list[float] = []
        working: list[float] = []
        for number in range(5):
            trail = live.trail(f"late{number}")
            request = live.counting(trail.path.name, steps=10**6)
            began = time.monotonic()
            (job,) = client.submit(request)
            eventually(lambda job=job: state_of(client, job) == "running", "it is started")  # type: ignore[misc]
            running.append(time.monotonic() - began)
            eventually(trail.pids, "its process runs")
            working.append(time.monotonic() - began)
        seen = client.cluster()
        first = client.job("1").job
    for name, took in {"running": running, "working": working}.items():
        record_property(f"seconds_to_{name}", took)
        print(f"seconds from submission to {name}:", [round(seconds, 3) for seconds in took])
    assert max(working) < 5.0, working
    assert seen.round_ends == round_ends, "another round has begun"
    assert round_ends - seen.time > 20.0
    assert first.attempts == 1


def test_a_job_moves_during_a_round_to_a_faster_type_that_becomes_idle_and_the_journal_tells_it_again(
    unhurried: LiveCluster,
) -> None:
    live = unhurried
    live.start_agent("fast", "v100=1")
    live.start_agent("slow", "k80=1")
    with live.client() as client:
        eventually(lambda: len(client.cluster().servers) == 2, "both are there")
        short = replace(live.counting("short", steps=60), types=["v100"])
        ids = client.submit([short, live.counting("long", steps=600)])
        eventually(live.trail("long").steps, "it runs")
        round_ends = client.cluster().round_ends
        assert client.job(ids[1]).job.type == "k80"
        client.wait(ids[0], timeout=60)
        eventually(lambda: len(live.trail("long").pids()) == 2, "it is started elsewhere")
        seen, view = client.cluster(), client.job(ids[1]).job
        assert seen.round_ends == round_ends, "another round has begun"
        assert round_ends - seen.time > 20.0
        assert (view.type, view.attempts) == ("v100", 2)
        assert "moves to v100" in [turn.reason for turn in client.job(ids[1]).history]
        eventually(lambda: len(live.trail("long").steps("2")) > 30, "it makes steps")  # enough to be measured
        client.cancel(ids[1])
        # Something is under way when the scheduler stops.
        client.submit([live.counting("more", steps=10**6) for _ in range(3)])
        eventually(live.trail("more").steps, "it runs")
    steps = live.trail("long").steps()
    assert steps == list(range(1, len(steps) + 1)), "it continues from its checkpoint"
    assert live.scheduler is not None
    live.scheduler.terminate()
    live.scheduler.wait()
    told_again(live, ServeSettings(round_seconds=LONG_ROUND_SECONDS))
    with open_read_only(sqlite_url(live.folder / "state" / "journal.sqlite")) as journal:
        entries = list(journal.facts(kinds=["restart_measured"]))
    (measured,) = [entry.document["fact"] for entry in entries]
    assert measured["job"] == ids[1]
    assert 0.0 < measured["seconds"] < 20.0
    print("measured restart:", measured["seconds"])
