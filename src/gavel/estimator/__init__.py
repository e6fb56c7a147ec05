"""How fast jobs are, alone and together, before and while somebody has measured it."""
