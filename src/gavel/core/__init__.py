"""Pure data and arithmetic: jobs, cluster, throughputs, the problem and its answer. No solver, no network, no clock."""
