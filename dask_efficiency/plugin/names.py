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

#: Key, in a worker's answers, of what it does not measure because its distributed differs.
STAYS_OFF = "stays_off"

#: Names in the rows of a reply: all workers together; the span of other clients' work and of work from before the
#: window; and the time of no span.
ALL_WORKERS = "(all workers)"
OTHER_WORK = "(other work)"
NO_SPAN = "(no span)"

#: Op of the handlers with which the scheduler answers clients, and workers answer the scheduler.
OP = METRIC

# -- topics of events ------------------------------------------------------------------------------

#: A closing worker's final snapshot.
FINAL_SNAPSHOT = "dask-efficiency-last-words"

#: Batches of workers' recordings, in order on a worker's stream; a scheduler without the plugin ignores them.
BATCHES = "dask-efficiency-trace"

#: Stragglers, for users: ``client.get_events``, ``client.subscribe_topic``.
STRAGGLERS_TOPIC = "dask-efficiency"

# -- actions of the handlers ------------------------------------------------------

#: On the scheduler and on workers: read the clock; open or close a window.
CLOCK = "clock"
OPEN = "open"
CLOSE = "close"

#: On the scheduler and on workers: a test before a job starts.
PREFLIGHT = "preflight"

#: On the scheduler, by clients.
RELEASE = "release"
UNREGISTER = "unregister"
LIFE = "life"
HISTORY = "history"
LIVE = "live"
TRACE = "trace"
PROFILE = "profile"
STRAGGLERS = "stragglers"
SERIES = "series"

#: Steps of a test, asked of the scheduler by clients.
BEGIN_TEST = "begin"
WAIT_FOR_TEST = "wait"

#: Steps of a test, asked of workers by the scheduler: readiness; measure alone; measure with a partner.
READY = "ready"
MEASURE = "measure"
PAIR = "pair"

#: Steps with a partner: begin a measurement, take bytes, give bytes, end it.
MEET = "meet"
TAKE = "take"
GIVE = "give"
PART = "part"

#: On both: end a test.
STOP_TEST = "stop"

#: On workers, by the scheduler.
SNAPSHOT = "snapshot"
EVERYTHING = "everything"
RECORD = "record"
FLUSH = "flush"
ASK_FINAL_SNAPSHOT = "last-words"
