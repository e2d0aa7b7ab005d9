"""The names by which the halves of the plugin know one another: each is spelled here and nowhere else.

They travel, so their spelling stays. Only the standard library may be imported here. The one other place that spells
two of them is :mod:`~dask_efficiency.plugin.bootstrap`, which travels by value to workers that may not have this
package; a test holds the two together.
"""

from __future__ import annotations

#: Name of the plugin on the scheduler, and of its half on the workers.
PLUGIN = "dask-efficiency"
WORKER_PLUGIN = "dask-efficiency-worker"

#: Key of the metric in a worker's heartbeat.
METRIC = "efficiency"

#: Annotation by which the scheduler marks a task that had been in memory once before: the id of the worker with which
#: that was lost.
RECOMPUTED = "dask-efficiency-recomputed"

#: Key of the host's sensors in what the metric says.
SENSORS = "sensors"

#: Key of what a worker does not measure, as its distributed is another, in its answers.
STAYS_OFF = "stays_off"

#: Stand in the rows of a reply for all workers together; for the span that has those of other clients, and of work
#: from before the window; and for the time that no span has.
ALL_WORKERS = "(all workers)"
OTHER_WORK = "(other work)"
NO_SPAN = "(no span)"

#: Op of the handlers by which the scheduler answers clients, and workers answer the scheduler.
OP = METRIC

# -- topics of events ------------------------------------------------------------------------------

#: A closing worker's final snapshot.
FINAL_SNAPSHOT = "dask-efficiency-last-words"

#: Batches of what workers record. They ride a worker's stream, in order, and a scheduler that does not know them
#: ignores them.
BATCHES = "dask-efficiency-trace"

#: Stragglers, for users: ``client.get_events``, ``client.subscribe_topic``.
STRAGGLERS_TOPIC = "dask-efficiency"

# -- actions: what the handlers are asked for ------------------------------------------------------

#: Of the scheduler and of workers: the clock; open or close a window.
CLOCK = "clock"
OPEN = "open"
CLOSE = "close"

#: Of the scheduler and of workers: a test before a job starts.
PREFLIGHT = "preflight"

#: Of the scheduler, by clients.
RELEASE = "release"
UNREGISTER = "unregister"
LIFE = "life"
HISTORY = "history"
LIVE = "live"
TRACE = "trace"
PROFILE = "profile"
STRAGGLERS = "stragglers"
SERIES = "series"

#: Steps of a test, of the scheduler by clients.
BEGIN_TEST = "begin"
WAIT_FOR_TEST = "wait"

#: Steps of a test, of workers by the scheduler: whether it can be tested; measure alone; measure with a partner.
READY = "ready"
MEASURE = "measure"
PAIR = "pair"

#: By a partner: a measurement begins, take some bytes, give some bytes, it is over.
MEET = "meet"
TAKE = "take"
GIVE = "give"
PART = "part"

#: Of both: end a test.
STOP_TEST = "stop"

#: Of workers, by the scheduler.
SNAPSHOT = "snapshot"
EVERYTHING = "everything"
RECORD = "record"
FLUSH = "flush"
ASK_FINAL_SNAPSHOT = "last-words"
