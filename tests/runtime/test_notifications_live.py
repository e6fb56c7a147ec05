"""Notifications of real processes: a scheduler that is killed between fact and delivery, and the command line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from live_cluster import GAVEL, LiveCluster, eventually, state_of

from gavel import JobRequest, verify_notification
from receivers import receiving


def told(cluster: LiveCluster, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = [*GAVEL, "notifications", *words, "--scheduler", cluster.address]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_what_a_killed_scheduler_could_not_deliver_the_next_one_delivers(tmp_path: Path) -> None:
    port = free_port()
    host, url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/hook"
    with LiveCluster(tmp_path, {"notify-hosts": host}) as cluster, cluster.client() as client:
        set_now = told(cluster, "set", url)
        assert (set_now.returncode, set_now.stderr) == (0, "")
        assert f"told about every job: {url}" in set_now.stdout
        refused = told(cluster, "set", "https://169.254.169.254/latest")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("gavel: notify: https://169.254.169.254 may not be called; the operator has")
        tested = told(cluster, "test")
        assert (tested.returncode, tested.stdout) == (1, f"{url}: the connection was refused\n")
        cluster.start_agent("a", "v100=1")
        job = client.submit(JobRequest([sys.executable, "-c", "raise SystemExit(3)"], retries=0, name="doomed"))[0]
        eventually(lambda: state_of(client, job) == "failed", "the job has failed")
        cluster.kill_scheduler()
        with receiving(port) as receiver:
            cluster.start_scheduler()
            receiver.wait(2)
            assert sorted(receiver.events) == ["failed", "started"]
            failed = next(body for body in receiver.bodies if body["event"] == "failed")
            assert (failed["job"]["name"], failed["job"]["exit_code"]) == ("doomed", 3)
            eventually(lambda: not client.notifications().pending, "nothing is pending")
            shown = json.loads(told(cluster, "--json").stdout)
            assert (shown["urls"], shown["pending"], shown["trouble"]) == ([url], 0, "")
            for _, headers, body in receiver.requests:
                verify_notification(body, headers, shown["signing_key"])
            again = told(cluster, "test")
            assert (again.returncode, again.stdout) == (0, f"{url}: delivered, status 204\n")
