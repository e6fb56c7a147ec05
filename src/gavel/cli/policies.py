"""`gavel policies`: what there is to choose from."""

from __future__ import annotations

from gavel.cli.options import AsJson
from gavel.cli.render import console, print_json, table
from gavel.policies.registry import POLICIES


def policies(as_json: AsJson = False) -> None:
    """List every policy with what it does."""
    if as_json:
        listed = [
            {
                "name": policy.name,
                "description": policy.summary,
                "objective": policy.objective,
                "direction": "minimise" if policy.minimised else "maximise",
                "needs": sorted(policy.needs),
                "baseline": policy.baseline,
            }
            for policy in POLICIES.values()
        ]
        print_json({"policies": listed})
        return
    out = console()
    out.print(table(["policy", "what it does"], ([p.name, p.summary] for p in POLICIES.values()), left=2))
    out.print("\nEach runs heterogeneity-aware, or with --agnostic as if all types were equally fast.", style="dim")
    out.print("A policy of your own is named module.NAME, after the Python module that it stands in.", style="dim")
