"""The cluster's accounts: workers that come and go, their sums, and the windows that reports are made of.

Theory of operation
===================

**The question.** Where did every thread-second of a cluster go, since the scheduler began to count
(:class:`~dask_efficiency.accounts.cluster.cluster.ClusterLedger`), and between two instants
(:class:`~dask_efficiency.accounts.cluster.windows.ClusterWindow`)? A worker's ledger answers that for its own life. But
its snapshots travel with heartbeats: they are lost, repeated and late, they stop when the worker is killed, and each
machine has a clock of its own. The sum must be exact all the same.

**What comes in.** A *snapshot* holds totals since a ledger began, never differences: so one that is lost costs nothing.
It names its ledger (``incarnation``, new whenever a meter starts) and its number (``seq``). Heartbeats carry what
changed in the last few of them, and everything where the scheduler missed more. The scheduler adds what only it knows:
when a worker joined and left, whether work was outstanding
(:class:`~dask_efficiency.accounts.cluster.idle.WorkClock`), and what free slots were free for
(:class:`~dask_efficiency.accounts.cluster.idle.IdleWeights`).

**States of a presence**, which is one worker from joining to leaving (a worker that comes again is another one)::

    worker_joined        first snapshot               snapshot
        ------> JOINED -----------------> METERED --+
                  |                         |  ^----+
                  | silent for 30 s         | three refusals in a row, or its meter says that it is off
                  +-------> OFF <-----------+            (both from JOINED, too)

    worker_left, from any of them --> LEAVING --> CLOSED   at once if OFF or its final snapshot is here;
                                                           else when that comes, or after 2 s

==================================  ==========================================================================
time of a presence                  bucket
==================================  ==========================================================================
from joining to its first ledger    ``unmeasured``; also between two ledgers, if the meter was restarted
of a ledger                         as the worker says, its idle time divided by the scheduler: see below
OFF                                 ``unmeasured``, with the reason
after a final snapshot              ``unmeasured`` until the removal
without a final snapshot            since the last one: ``retiring`` if it closed in order, else ``lost-worker``
LEAVING                             ``running``: which of these it is gets known when it is closed
==================================  ==========================================================================

Of ``unmeasured`` time, the part without outstanding work is ``no-work``: a worker without the package loses nothing
while there is nothing to do.

**Clocks.** No instant of a worker's clock is ever used. A snapshot says how long its ledger has run; that and its
arrival say when the ledger began, at the latest, since travelling only adds. The earliest of these is the beginning
(``Presence.began``), and may drift by 1 ms a snapshot. If the first snapshot travelled slowly, the gap before the
ledger was made too long: a quicker one shows by how much, and that much of its idle time is left out as counted
already.

**Idle time** is divided where it is recorded. By the clock of work, as of the instant at which the snapshot was taken,
a part is ``no-work``. The rest goes to causes by what the scheduler saw of free slots meanwhile, and to ``paused``.

**A window** takes each worker's totals as it answers at the opening, and asks each for its own window at the end. A
worker's ledger takes out of a task that ended in the window, pro rata, what it had held before. Each presence counts
once:

====================================================  ========================================================
what the window has of it                             so it counts
====================================================  ========================================================
an answer                                             exactly, from edge to edge of its own window
a part sent ahead, as a worker closes                 exactly, until that
no answer, or its meter was restarted meanwhile       by its heartbeats (``account.between``); silence is
                                                      ``unmeasured``, and its spans are not known
it left without a final snapshot                      by its heartbeats; the rest as its presence says
it joined meanwhile                                   from its joining
====================================================  ========================================================

The length of the window is the mean of the windows of the workers that were there throughout and answered, weighted by
their threads. :mod:`~dask_efficiency.accounts.cluster.span_shares` says how spans share the time of free slots.

**Invariants.** In ``tests/accounts/cluster/test_cluster.py`` a state machine lets workers do what they do, and another
one (``WildMachine``) sends what no worker would; after each step:

1. Finalized time and ``running`` of each presence are its threads times the time covered
   (``each_worker_is_accounted_for_from_joining_to_its_last_heartbeat_or_its_removal``); the activities add up to it
   without ``running`` (``the_activities_of_slots_add_up_too_without_running_tasks``).
2. No total shrinks, whatever arrives (``no_total_shrinks``, in both machines).
3. Only time of workers that vanished is lost (``only_the_time_of_vanished_workers_is_lost``).
4. Causes of idle time add up to it (``the_causes_of_idle_time_add_up_to_it``).
5. What was gained between any two looks is not negative and adds up (``the_gain_since_the_last_look_adds_up``).
6. A worker's row of a window sums to its threads times its presence in it, whatever becomes of it
   (``test_every_worker_s_buckets_sum_to_its_threads_times_its_presence`` in ``test_windows.py``).
7. Sums are exact beyond 64 bits (``test_sums_are_exact_however_large_and_later_prefixes_share_one``).

**Why so.** Everything is integer nanoseconds, and each split is of time that is already counted, the last part being
what the others leave: a wrong measurement can name time wrongly, but cannot make or lose any. What cannot be true
(shrinking totals, more time than has passed) is refused before it is recorded, for a total cannot be taken back.

**What was tried and rejected.**

- *Idle time as the residual of the whole cluster, at least 0*, as Dask's spans have it: each error of the other sums
  ends in it unseen.
- *The scheduler's stamps as the length of a window.* Its event loop stood still after the stamp, the workers were asked
  later, and the sum was larger than threads times window. Hence the mean of the workers' own.
- *Putting a report together when all have answered*: of a thousand workers that took two seconds, in which the
  scheduler stood still. Answers are counted as they come.
- *Taking the whole gap off again for each quicker snapshot*: a busy machine lost idle time that way. ``taken_off``
  bounds it by the gap.
- *Judging a ledger's age by when its worker was known to be metered.* Registering waits for all answers, and workers
  that were there first were refused three times. Their ledgers may be as old as the moment they were asked.

**Limits.** Within one heartbeat the split of free time into ``idle`` and ``no-work`` is an estimate; their sum is
exact. So is, where no window was open on a worker, the part of a task that ran before. The clock of work remembers 4096
turns. Names are bounded: by default 5000 of workers and 1000 of prefixes, and one name for the rest.
"""
