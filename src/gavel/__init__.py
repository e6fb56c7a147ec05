"""Gavel: share a cluster of mixed accelerators among training jobs, by policies that know how fast each job runs where.

>>> import gavel
>>> types = [gavel.AcceleratorType("v100", 1), gavel.AcceleratorType("k80", 1)]
>>> speeds = {"cnn": 4.0, "gan": 3.0, "rl": 2.0}  # steps/s on a V100; all make 1 step/s on a K80
>>> jobs = [gavel.Job(name, {"v100": fast, "k80": 1.0}) for name, fast in speeds.items()]
>>> allocation = gavel.allocate(gavel.Problem.of(types, jobs), "max_min_fairness")
>>> for row in allocation.rows():
...     print(row.jobs[0], {name: round(share, 2) for name, share in row.shares.items()})
cnn {'v100': 0.45, 'k80': 0.0}
gan {'v100': 0.45, 'k80': 0.09}
rl {'v100': 0.09, 'k80': 0.91}
>>> str(allocation.limits()["cnn"]), round(allocation.certificate.prices["v100"], 2)
('limited by v100', 0.44)
"""

from gavel.core.allocation import Allocation, Certificate, Limit
from gavel.core.cluster import AcceleratorType
from gavel.core.errors import GavelError, InputError, SolverError
from gavel.core.jobs import Entity, Job, Pair, PlacedRate
from gavel.core.problem import Problem
from gavel.core.problem_file import parse_problem
from gavel.policies.registry import POLICIES, allocate
from gavel.version import __version__

__all__ = [
    "POLICIES",
    "AcceleratorType",
    "Allocation",
    "Certificate",
    "Entity",
    "GavelError",
    "InputError",
    "Job",
    "Limit",
    "Pair",
    "PlacedRate",
    "Problem",
    "SolverError",
    "__version__",
    "allocate",
    "parse_problem",
]
