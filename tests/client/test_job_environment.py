"""What a process of a job takes itself for, by the variables that it finds."""

from __future__ import annotations

import pytest

from gavel.client.job_environment import JobEnvironment
from gavel.errors import InputError

NODE = {"GAVEL_NODE_RANK": "1", "GAVEL_NODES": "2", "GAVEL_WORKERS": "4", "GAVEL_WORKERS_HERE": "2"}
ALONE = {"GAVEL_NODE_RANK": "0", "GAVEL_NODES": "1", "GAVEL_WORKERS": "2", "GAVEL_WORKERS_HERE": "2"}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"GAVEL_RANK": "3", "GAVEL_WORLD_SIZE": "4", "RANK": "0", "WORLD_SIZE": "1"}, (3, 4)),
        (NODE, (1, 2)),  # one process for each server that starts no ranks, as JAX programs are
        ({**NODE, "RANK": "3", "WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}, (3, 4)),  # torchrun
        ({**NODE, "RANK": "1", "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"}, (1, 2)),  # with one rank for each server
        ({**NODE, "RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),  # a launcher that names no servers
        ({**ALONE, "RANK": "1", "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}, (1, 2)),
        ({**ALONE, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),  # mpirun
        ({**ALONE, "PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2)),
    ],
)
def test_a_process_knows_its_rank_whatever_started_it(variables: dict[str, str], place: tuple[int, int]) -> None:
    found = JobEnvironment.of(variables)
    assert (found.rank, found.world_size) == place


@pytest.mark.parametrize(
    "launcher",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"},  # torchrun --standalone
        {"RANK": "0", "WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"},
        {"RANK": "1", "WORLD_SIZE": "2"},  # deepspeed without a host file
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
    ],
)
def test_ranks_of_one_server_that_take_themselves_for_all_of_the_job_are_refused(launcher: dict[str, str]) -> None:
    with pytest.raises(InputError, match="the job runs on 2 servers, and each would train by itself; use torchrun"):
        JobEnvironment.of({**NODE, **launcher})
