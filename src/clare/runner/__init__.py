"""Grids of runs: processes, Ray, tuning, resume, loggers, and what a run needs before it can begin."""
