"""Workers whose metrics leave their peers and their own past.

Theory of operation
===================

**The question.** Which machine is at fault, by its metrics alone, where nothing tells which task ran when? Machines
differ for good (their cards, their place in the rack, what else they serve), all of them change together (a job loads,
computes, halts), and each of them has bursts. A fault is what is none of these: a worker leaves *its own* usual
difference from *the others*, and stays away for minutes. This folder answers for one window of series on even steps
(``metric_series.py``), with a history or without. Rounds, and whom to tell, are for ``fleet/rounds`` and
``fleet/watch.py``; ``straggler/score.py`` answers by tasks, which know the work, and so needs no past.

**The steps**, from metrics to findings::

    series --by_host--> workers, hosts --comparable--> a group that does the same work
                                                          |
          block_signals: differences from the median worker, of 3 signals a metric, by block
                          |                                         |
              departures: distance of each stretch        unlike_from_start: distance of the whole window
              from the worker's past, in its own noise    from the others, by the largest among these
                          |                                         |
              outlier_scores --> culprits: no victims               |
                          +------------------> findings <-----------+

1. *Hosts.* Workers of a host read the same sensors at slightly different times, which tells nothing about one of them.
   These metrics are averaged by host, and accuse the host.
2. *Signals* (``block_signals.py``). In blocks of 15 s, or of three samples, each metric gives three figures: its level,
   its *swings* (logarithm of the variance of its difference from the peers) and its *movement* (mean logarithm of its
   own squared changes). Of each the median worker's is subtracted, at every block: what all do is nobody's. A block is
   averaged with its neighbour, so that what comes and goes within a minute cancels.
3. *Units.* A difference counts in standard deviations of how a worker varies about its own median; a change that does
   not matter (3 % of a metric's usual level, swings or movement 1.4 times as large) is less than three of them.
4. *Departures* (``departures.py``). Of each stretch of four and a half minutes counts the distance that is kept in all
   blocks but the 15 % nearest to the past. A burst, however high, keeps none. The squares of all signals are added up.
5. *Scores.* The root of the largest sum, over ``limit(signals x workers)``. Above 0.8 a
   worker is an outlier.
6. *Culprits.* Who has half of the highest score, or 0.7 of that half and began within 10 s of one who has. The onset of
   each is fitted to its strongest signals. Those that begin within 15 s of each other have a fault in common; who
   begins later, within two minutes, is a victim. If more than two are left, and more than a quarter of the group, the
   job treats machines unlike each other, and nobody is named.

**States of a past.** "Away" needs a where-from, and what is known of that differs from worker to worker:

====================================  ==================================================================================
what is known of a worker             it must be beyond
====================================  ==================================================================================
a history of two minutes or more      its median difference in the history, in multiples of its own noise there
none, 4.5 minutes before a stretch    the quantile 0.95 of its differences in these, or as in the next row
none, 2 minutes and 5 blocks before   its median difference in these, and two standard deviations of how peers differ
                                      lastingly, as a burst may fill so short a time
less                                  nothing: no stretch of it is judged as a departure
none, from the start of the window    2.5 times the largest lasting difference of the others (5 times among eight),
                                      in two metrics that move; a few others may be as far. Only for the same work
====================================  ==================================================================================

A history that lacks more than half of the workers, or a worker in it, is none. The last row has a lower confidence, and
no departure with a lower score is named beside it: it may be the consequence.

**What is expected of a difference** while the peers change, and is therefore taken off before anything counts:

- a lasting difference grows and shrinks in proportion to the peers' level, or stays: when all halt, a machine that had
  10 % more has nearly nothing more;
- a machine that follows the job's rhythm less than others is above them whenever they wait: the slope of its difference
  over the peers' level is learnt from the past (``_slopes``);
- machines wander: where a job's step is sampled at another place on each, these places drift, and the usual distance of
  *all* workers from their past, beyond chance, is nobody's fault (``moved``);
- a machine that was noisier than others must go further, by its own noise;
- few blocks are all beyond by chance more often than most of many, so with rare samples the distance must be larger by
  what chance adds (``few_blocks``).

**Invariants**, in ``tests/fleet/outliers/test_outliers.py`` unless another file is named:

1. Units and the order of workers do not matter (``test_units_and_the_order_of_the_workers_do_not_matter``).
2. A change of all accuses nobody (``test_no_machine_is_accused_when_all_pause_or_come_to_wait``), nor does what more
   than a quarter do (``test_a_third_of_all_machines_is_no_outlier``).
3. Lasting differences, small changes, bursts of three minutes and gaps accuse nobody
   (``test_no_worker_is_found_without_a_fault_of_its_own``); a difference for the whole window is new only against a
   history (``test_a_difference_for_the_whole_run_is_new_only_against_a_history``).
4. Who stands still at its own mean is found (``test_a_machine_that_stands_still_at_its_own_mean_is_found``).
5. Nobody is compared with workers of another group (``test_only_workers_of_a_group_are_compared``), and sensors of a
   host accuse no worker of it (``test_the_sensors_of_a_host_accuse_the_host_and_never_one_of_its_workers``).
6. Wandering as most do is no departure (``test_machines_that_wander_as_most_do_are_not_accused``), and a noisy machine
   must go further (``test_a_machine_that_was_noisy_before_must_go_further``).
7. Samples far apart bring no more alarms (``test_samples_far_apart_bring_no_more_alarms_than_those_close_together`` in
   ``test_departures.py``).
8. Several faults at once are several, and what follows shortly is a consequence
   (``test_faults_of_four_machines_at_once_are_four``,
   ``test_only_a_fault_that_follows_another_shortly_is_a_consequence``).
9. No table ends the search, whatever its shape (``test_no_table_ends_the_search_or_makes_numpy_warn`` in
   ``test_shapes.py``).

**What was tried and rejected**, with F1 on the generator after Minder's description where it was measured:

- *The paper's Minder*, .53 (``benchmarks.studies.rivals``); its distances as metrics come close to the metrics.
- *A median over the window* in place of a share of it, which half of it moves.
- *Levels and swings only.* A process that hangs, or an exporter that is stuck, often stays at its own mean.
- *The mean of squared changes* as movement, which does not tell a few large changes, of a slow clock, from many. And
  changes from one sample to the next: an exporter may be refreshed only every 15 s, so they are over a block.
- *Naming all that begin with the strongest*, or half of that half within 15 s: of four of 64 machines at fault F1 is
  .92 and .87 in place of .79 (tuning seeds), but with the first the third generator's precision falls from .82 to .71,
  and with the second effects of a third of a fault are named beside it, or silence it, in 72 of 72 runs in place of 6.
- *The spread of the peers* as the measure from the start: some healthy machines differ lastingly by much, and the
  largest of them, not the usual one, is what a fault must exceed.
- *The window's own noise alone.* One in which the job has halted is quieter than what came before, and then small
  differences seem far: the larger of both counts.

**Limits.** Of two workers nobody is blamed. Without a history, a fault that begins in the first two minutes is seen
only from the start, if at all. Swings smaller than the job's rhythm are missed. Machines with loads of their own leave
their past whenever they like: ``fleet/rounds/alarm_bound.py`` deals with them. The constants were chosen on tune seeds
of the generators, or by judgement, as their comments say; ``python -m benchmarks.studies.outliers`` prints what they
achieve.
"""
