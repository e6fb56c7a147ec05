"""Which variables of the agent's environment jobs inherit: no credentials, no ranks; others only harmless ones."""

from __future__ import annotations

from collections.abc import Mapping

OURS = "GAVEL_"
"""Prefix of our own settings, tokens and certificates: a job gets those that are meant for it, and no others."""
DENIED = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_PIDFDID",
        "MAINPID",
        "MANAGERPID",
        "MEMORY_PRESSURE_WATCH",
        "MEMORY_PRESSURE_WRITE",
        "NOTIFY_SOCKET",
        "SYSTEMD_EXEC_PID",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)
"""What a service manager gives to the agent as a service, including where the agent's credentials are."""
RANKS = frozenset(
    {
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "RANK",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NPROCS",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_PROCID",
        "SLURM_TASKS_PER_NODE",
        "SLURM_TASK_PID",
        "WORLD_SIZE",
    }
)
"""The agent's own place among processes that Slurm, torchrun or MPI started: a job would take it for its own."""
RANKS_PREFIXES = ("MV2_COMM_WORLD_", "OMPI_COMM_WORLD_", "PET_", "PMIX_", "PMI_", "SLURM_STEP", "TORCHELASTIC_")
ALLOWED = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH"})
"""What jobs of another user inherit: where programs and libraries are, and the language."""
ALLOWED_PREFIXES = ("LC_", "NCCL_", "GLOO_", "UCX_", "NVIDIA_", "HSA_")
"""What describes the server's devices and networks."""


def inherited_by_jobs(environment: Mapping[str, str], *, other_user: bool) -> dict[str, str]:
    """The agent's variables that a job gets.

    >>> inherited_by_jobs({"GAVEL_TOKEN": "x", "PATH": "/bin", "AWS_KEY": "y"}, other_user=False)
    {'PATH': '/bin', 'AWS_KEY': 'y'}
    >>> inherited_by_jobs({"GAVEL_TOKEN": "x", "PATH": "/bin", "AWS_KEY": "y"}, other_user=True)
    {'PATH': '/bin'}
    >>> inherited_by_jobs({"RANK": "3", "PMI_SIZE": "8", "SLURM_JOB_ID": "7"}, other_user=False)
    {'SLURM_JOB_ID': '7'}
    """
    passes = _is_harmless if other_user else _is_not_ours
    return {name: value for name, value in environment.items() if passes(name)}


def _is_not_ours(name: str) -> bool:
    return not (name.startswith((OURS, *RANKS_PREFIXES)) or name in DENIED or name in RANKS)


def _is_harmless(name: str) -> bool:
    return name in ALLOWED or name.startswith(ALLOWED_PREFIXES)
