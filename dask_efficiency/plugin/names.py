"""Names that travel between the halves of the plugin: each is spelled here and nowhere else, and never changes.

Only the standard library may be imported here. :mod:`~dask_efficiency.plugin.bootstrap` repeats two of the names, as it
travels by value to workers that may not have this package; a test compares them.
"""

from __future__ import annotations

#: Name of the plugin on the scheduler, and of its half on the workers.
PLUGIN = "dask-efficiency"
WORKER_PLUGIN = "dask-efficiency-worker"
#: Key of the metric in a worker's heartbeat.
METRIC = "efficiency"
#: Annotation by which the scheduler marks a task whose result was lost: the id of the worker that had it.
RECOMPUTED = "dask-efficiency-recomputed"
#: Key of the host's sensors in the metric.
SENSORS = "sensors"
#: Key, in the metric, of the file that counts the kernel's kills for memory in the worker's group, and its number.
OOM_KILLS = "oom_kills"
#: Characters of that file's path: Linux has no longer ones.
MAX_PATH = 4_096
#: Key, in a worker's answers, of what it does not measure because its distributed differs.
STAYS_OFF = "stays_off"
#: Key, in a worker's answers, of what users' labels counted there that no account takes.
LEFT_OUT = "left_out"
#: Longest time, seconds, for which a worker may be asked to wait with its answer: ten thousand answer 2.5 ms apart.
MAX_DELAY_SECONDS = 30.0
#: Names in the rows of a reply: all workers together; the span of other clients' work and of work from before the
#: window; and the time of no span.
ALL_WORKERS = "(all workers)"
OTHER_WORK = "(other work)"
NO_SPAN = "(no span)"
#: Op of the handlers with which the scheduler answers clients, and workers answer the scheduler.
OP = METRIC
#: Topics of events: a closing worker's final snapshot; batches of workers' recordings, in order on a worker's stream,
#: which a scheduler without the plugin ignores; stragglers, for users (``client.get_events``).
FINAL_SNAPSHOT = "dask-efficiency-last-words"
BATCHES = "dask-efficiency-trace"
STRAGGLERS_TOPIC = "dask-efficiency"
#: Actions of the handlers on the scheduler and on workers: read the clock; open or close a window; a test before a
#: job; tell what all threads do.
CLOCK = "clock"
OPEN = "open"
CLOSE = "close"
PREFLIGHT = "preflight"
STACKS = "stacks"
#: Actions on the scheduler, by clients.
RELEASE = "release"
UNREGISTER = "unregister"
LIFE = "life"
HISTORY = "history"
LIVE = "live"
TRACE = "trace"
PROFILE = "profile"
STRAGGLERS = "stragglers"
LEFT = "left"
SERIES = "series"
#: Action on the scheduler, by the thread of a worker whose event loop is blocked.
ASIDE = "aside"
#: Actions on workers, by the scheduler.
SNAPSHOT = "snapshot"
EVERYTHING = "everything"
RECORD = "record"
FLUSH = "flush"
ASK_FINAL_SNAPSHOT = "last-words"
#: Steps of a test, asked of the scheduler by clients; of both, its end.
BEGIN_TEST = "begin"
WAIT_FOR_TEST = "wait"
STOP_TEST = "stop"
#: Steps of a test, asked of workers by the scheduler: readiness; measure alone; measure with a partner.
READY = "ready"
MEASURE = "measure"
PAIR = "pair"
#: Steps with a partner: begin a measurement, take bytes, give bytes, end it.
MEET = "meet"
TAKE = "take"
GIVE = "give"
PART = "part"
