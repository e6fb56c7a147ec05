"""The simulated world: virtual time, true rates, restart costs and failures; the scheduler in it is the real one."""
