"""`gavel policies`: the available policies."""

from __future__ import annotations

from gavel.cli.options import AsJson
from gavel.cli.render import console, print_json, table
from gavel.policies.registry import POLICIES


def policies(as_json: AsJson = False) -> None:
    """List all policies and what they do."""
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
    out.print(
        "\nEach is heterogeneity-aware; with --agnostic it decides as if all types were equally fast.", style="dim"
    )
    out.print("To use your own policy, name it module.NAME, after its Python module.", style="dim")
