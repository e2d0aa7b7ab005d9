"""Plan of the job of ``gloo_job.py``, for it and for the tests of its traces."""

RANKS = 4
STEPS = 6
#: The profiler's step, and the rank that is late in it. Rank 0 is the one whose clock is the job's.
LATE_START = 2, 1
COMPUTE = 3, 2
DATA_LOADING = 4, 3
COMMUNICATION = 5, 0
#: What the rank sends whose communication takes long.
MESSAGES = 60
