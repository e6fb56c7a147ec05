"""One benchmark from start to end: a scheduler, a modelled fleet, a load, and outside measurements."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from gavel.bench.fleet.admission import OPEN, Admission, User, secure
from gavel.bench.fleet.leases import rounds_of, spread_of
from gavel.bench.fleet.listing import measure_listing
from gavel.bench.fleet.load import Load, agent_name
from gavel.bench.fleet.processes import STATE, Helper, SchedulerProcess, helper, run_to_the_end, scheduler_process
from gavel.bench.fleet.watchers import MARKER
from gavel.client.api import BATCH_JOBS, Client
from gavel.client.requests import JobRequest
from gavel.errors import GavelError

CALL_SECONDS = 120.0
"""A call to the scheduler that takes longer has failed."""
CONNECT_SECONDS = 60.0
CATCH_UP_SECONDS = 120.0
"""Maximum wait; what is missing by then is reported."""
WATCHER_PROCESSES = 2
SINGLES = 200
"""Number of single-job submissions to time when there are no agents."""
ON_TIME = 0.1
"""A round is on time if its renewals arrive within this fraction of its length."""

Figures = dict[str, Any]
Say = Callable[[str], None]


def run(load: Load, say: Say, profile: Path | None = None, *, secured: bool = False) -> Figures:
    """Measure a scheduler under a load; if the benchmark cannot be completed, its figures include `trouble`."""
    return run_to_the_end(_run(Bench(load, say, profile, secured)))


def run_both(load: Load, say: Say, open_profile: Path | None, secured_profile: Path | None) -> tuple[Figures, Figures]:
    """Measure an open and a secured scheduler, each with its own load, during the same time."""
    return run_to_the_end(_run_both(load, say, open_profile, secured_profile))


async def _run_both(
    load: Load, say: Say, open_profile: Path | None, secured_profile: Path | None
) -> tuple[Figures, Figures]:
    both_ready = asyncio.Barrier(2)
    first = Bench(load, lambda line: say(f"open: {line}"), open_profile, both_ready=both_ready)
    second = Bench(load, lambda line: say(f"secured: {line}"), secured_profile, secured=True, both_ready=both_ready)
    return await asyncio.gather(_run(first), _run(second))


async def _run(bench: Bench) -> Figures:
    try:
        async with asyncio.timeout(bench.load.limit_seconds):
            await bench.measure()
    except TimeoutError:
        bench.figures["trouble"] = f"no answer in time while {bench.phase}"
    except GavelError as error:
        bench.figures["trouble"] = f"{error} (while {bench.phase})"
    except asyncio.BrokenBarrierError:
        bench.figures["trouble"] = "the other scheduler could not be measured"
    if "trouble" in bench.figures and bench.both_ready is not None:
        await bench.both_ready.abort()
    return bench.figures


@dataclass(slots=True)
class Bench:
    """The benchmark of one load, and its figures so far."""

    load: Load
    say: Say
    profile: Path | None
    secured: bool = False
    """Whether the scheduler recognises its callers and speaks TLS."""
    admission: Admission = OPEN
    both_ready: asyncio.Barrier | None = None
    """Passed together with the benchmark of another scheduler, which is measured during the same time."""
    figures: Figures = field(default_factory=dict)
    phase: str = "starting"

    async def measure(self) -> None:
        """Run all phases in order; every process is ended on exit."""
        load = self.load
        options: dict[str, float | str] = {
            "round-seconds": load.round_seconds,
            "heartbeat-seconds": load.heartbeat_seconds,
            "lease-slack-seconds": load.lease_slack_seconds,
        }
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gavel-bench-")))
            await self._set_up(folder)
            scheduler = await stack.enter_async_context(
                scheduler_process(folder, options, self.profile, secured=self.secured)
            )
            await stack.enter_async_context(self._memory(scheduler))
            client = stack.enter_context(closing(self._client(scheduler.address)))
            prober = await stack.enter_async_context(helper("prober"))
            await prober.ask("begin", login=asdict(self.admission.login(scheduler.address, User.PROBER)))
            crews = [
                await stack.enter_async_context(helper("crew")) for _ in range(load.processes if load.agents else 0)
            ]
            await self._make_history(client)
            await self._attach(crews, scheduler)
            requests = load.requests()
            await self._wait_for_the_other()  # jobs that run longer are at another point of the same queue
            await self._submit(client, prober, requests)
            if load.watchers:
                watchers = [await stack.enter_async_context(helper("watchers")) for _ in range(WATCHER_PROCESSES)]
                await self._watch(watchers, prober, scheduler)
            else:
                watchers = []
            await self._steady(scheduler, client, prober, crews, requests)
            await self._watched(watchers)
            if load.finished:
                self._enter("listing jobs")
                environment = self.admission.environment(User.SUBMITTER)
                self.figures |= await measure_listing(client, prober, environment)

    async def _set_up(self, folder: Path) -> None:
        """Make identities for all callers, unless the scheduler is open."""
        if self.secured:
            self._enter("setting up users and certificates")
            agents = [agent_name(number) for number in range(self.load.agents)]
            self.admission = await asyncio.to_thread(secure, folder, folder / STATE, agents)

    def _client(self, address: str) -> Client:
        """The client that submits."""
        token = self.admission.tokens.get(User.SUBMITTER, "")
        fingerprint = self.admission.fingerprint
        return Client(address, timeout=CALL_SECONDS, patience=0.0, token=token, fingerprint=fingerprint)

    async def _wait_for_the_other(self) -> None:
        if self.both_ready is not None:
            await self.both_ready.wait()

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.say(phase)

    @asynccontextmanager
    async def _memory(self, scheduler: SchedulerProcess) -> AsyncIterator[None]:
        """Record the memory at the end, whatever the outcome."""
        try:
            yield
        finally:
            scheduler.check()
            self.figures |= {"memory_mb": scheduler.memory_mb(), "peak_memory_mb": scheduler.memory_mb("VmHWM")}

    async def _make_history(self, client: Client) -> None:
        """Create finished jobs by submitting and cancelling them before any agent can run them."""
        if not self.load.finished:
            return
        self._enter(f"making {self.load.finished:,} finished jobs")
        began = time.perf_counter()
        requests = replace(self.load, templates=26).requests()
        for first in range(0, self.load.finished, BATCH_JOBS):
            batch = list(islice(requests, min(BATCH_JOBS, self.load.finished - first)))
            await asyncio.to_thread(lambda jobs: client.cancel(client.submit(jobs)), batch)
        self.figures["finished_jobs_made_in_seconds"] = time.perf_counter() - began

    async def _attach(self, crews: list[Helper], scheduler: SchedulerProcess) -> None:
        """Connect all agents, or as many as connect in time."""
        load = self.load
        if not crews:
            return
        self._enter(f"connecting {load.agents:,} agents")
        began = time.monotonic()
        for index, crew in enumerate(crews):
            numbers = list(range(index, load.agents, len(crews)))
            await crew.ask(
                "attach",
                login=asdict(self.admission.login(scheduler.agents_address)),
                key_pairs=self.admission.key_pairs,
                numbers=numbers,
                accelerators=load.accelerators_per_agent,
                slack=load.lease_slack_seconds,
                seed=load.seed,
            )
        while await _attached(crews) < load.agents and time.monotonic() - began < CONNECT_SECONDS:
            scheduler.check()
            await asyncio.sleep(0.1)
        self.figures["connect_seconds"] = time.monotonic() - began

    async def _submit(self, client: Client, prober: Helper, requests: Iterator[JobRequest]) -> None:
        """Submit the queue in batches, as one call of the client does."""
        self._enter(f"submitting {self.load.jobs:,} jobs of {min(self.load.templates, self.load.jobs):,} templates")
        jobs = list(islice(requests, self.load.jobs))
        await prober.ask("report")
        began = time.perf_counter()
        ids = await asyncio.to_thread(client.submit, jobs)
        self.figures["submit_seconds"] = time.perf_counter() - began
        self.figures["submit_stall_seconds"] = max((await prober.ask("report"))["waits"], default=0.0)
        await prober.ask("ask_for", job=ids[-1])
        if not self.load.agents:
            began = time.perf_counter()
            await asyncio.to_thread(lambda: [client.submit(job) for job in islice(requests, SINGLES)])
            self.figures["single_submissions_per_second"] = SINGLES / (time.perf_counter() - began)

    async def _steady(
        self,
        scheduler: SchedulerProcess,
        client: Client,
        prober: Helper,
        crews: list[Helper],
        requests: Iterator[JobRequest],
    ) -> None:
        """Run and count."""
        load = self.load
        await self._wait_for_the_other()
        self._enter(f"settling for {load.settling_seconds:.0f} s")
        await asyncio.sleep(load.settling_seconds if load.agents else 0.0)
        self._enter(f"measuring for {load.seconds:.0f} s")
        for crew in crews:
            await crew.ask("settle")
        await prober.ask("report")
        cpu, began = scheduler.cpu_seconds(), time.monotonic()
        await self._arrivals(client, requests, began + load.seconds)
        seconds = time.monotonic() - began
        scheduler.check()
        self.figures["share_of_a_core"] = (scheduler.cpu_seconds() - cpu) / seconds
        self.figures["measured_seconds"] = seconds
        self._note_waits(await prober.ask("report"))
        self._note_agents([await crew.ask("report") for crew in crews], seconds)
        self.figures["machine_load"] = os.getloadavg()[0]

    async def _arrivals(self, client: Client, requests: Iterator[JobRequest], until: float) -> None:
        """Submit a few jobs each second, and one that shows watchers how late they are."""
        waits: list[float] = []
        while (now := time.monotonic()) < until:
            jobs = list(islice(requests, self.load.arrivals_per_second))
            if self.load.watchers:
                jobs.append(JobRequest(("modelled-job",), name=f"{MARKER}{now}", template="bench-marker", steps=1e3))
            if jobs:
                await asyncio.to_thread(client.submit, jobs)
                waits.append(time.monotonic() - now)
            await asyncio.sleep(max(min(now + 1.0, until) - time.monotonic(), 0.0))
        self.figures |= spread_of("arrival", waits)

    def _note_waits(self, probes: dict[str, Any]) -> None:
        waits = probes["waits"]
        self.figures |= spread_of("call", waits)
        self.figures["stall_longest_seconds"] = max(waits, default=0.0)
        self.figures["calls_failed"] = probes["failures"]
        self.figures["prober_own_delay_seconds"] = probes["own_delay"]

    def _note_agents(self, tallies: list[dict[str, Any]], seconds: float) -> None:
        if not tallies:
            return
        load, total = self.load, {name: sum(tally[name] for tally in tallies) for name in _COUNTS}
        rounds = rounds_of([(a, b) for tally in tallies for a, b in tally["leases"]], load.round_seconds)
        expected, on_time = int(seconds / load.round_seconds), rounds.on_time(ON_TIME * load.round_seconds)
        self.figures |= {
            "agents_connected": total["attached"],
            "agents_expected": load.agents,
            "missed_leases": total["expired"],
            "connections_lost": total["connections_lost"],
            "refusals": total["refusals"],
            "rounds": len(rounds.starts),
            "rounds_expected": expected,
            "rounds_on_time": on_time,
            "rounds_on_time_share": on_time / max(len(rounds.starts) - 1, expected - 2, 1),
            "starts_per_second": total["starts"] / seconds,
            "preemptions_per_second": total["left"] / seconds,
            "completions_per_second": total["completed"] / seconds,
            **spread_of("renewal", rounds.late),
            **spread_of("renewal_spread", rounds.spread),
            **spread_of("ack", [wait for tally in tallies for wait in tally["acks"]]),
        }

    async def _watch(self, watchers: list[Helper], prober: Helper, scheduler: SchedulerProcess) -> None:
        """Open all watch streams and wait until each knows every job."""
        load = self.load
        self._enter(f"{load.watchers} watchers catch up")
        await prober.ask("report")
        processes: list[SchedulerProcess | Helper] = [scheduler, *watchers]
        began, cpu = time.monotonic(), [each.cpu_seconds() for each in processes]
        login = asdict(self.admission.login(scheduler.address, User.WATCHER))
        for index, each in enumerate(watchers):
            await each.ask("begin", login=login, watchers=len(range(index, load.watchers, len(watchers))))
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while len(await _caught_up(watchers)) < load.watchers:  # noqa: ASYNC110 - asked over a pipe
                    await asyncio.sleep(0.2)
        seconds = time.monotonic() - began
        shares = [(each.cpu_seconds() - before) / seconds for each, before in zip(processes, cpu, strict=True)]
        caught = await _caught_up(watchers)
        self.figures |= {
            "watchers": load.watchers,
            "watchers_caught_up": len(caught),
            "catch_up_share_of_a_core": shares[0],
            "catch_up_busiest_client_share_of_a_core": max(shares[1:]),
            "catch_up_stall_seconds": max((await prober.ask("report"))["waits"], default=0.0),
        }
        if len(caught) == load.watchers:
            self.figures |= {"catch_up_seconds": max(caught), "catch_up_first_seconds": min(caught)}
        else:  # no figure: the time it would have taken is unknown
            self.figures["catch_up_given_up_after_seconds"] = seconds

    async def _watched(self, watchers: list[Helper]) -> None:
        """Report how late, and by how many watchers, the markers were seen."""
        if not watchers:
            return
        reports = [await each.ask("report", patience=CALL_SECONDS) for each in watchers]
        delays = [delay for report in reports for found in report["delays"].values() for delay in found]
        self.figures |= {
            **spread_of("change", delays),
            "changes_seen": len(delays),
            "watchers_lost": sum(report["lost"] for report in reports),
        }


_COUNTS = ("attached", "starts", "completed", "left", "expired", "connections_lost", "refusals")


async def _attached(crews: list[Helper]) -> int:
    return sum([(await crew.ask("attached", patience=CALL_SECONDS))["attached"] for crew in crews])


async def _caught_up(watchers: list[Helper]) -> list[float]:
    reports = [await each.ask("report", patience=CALL_SECONDS) for each in watchers]
    return [seconds for report in reports for seconds in report["caught_up"]]
