"""The tests on clusters that `make test` runs, by file, with what each proves; all others are slow.

Each stands for its kind: the tests beside it in its file run in `make test-all`.
"""

from __future__ import annotations

PROVES = {
    "plugin/test_identity_on_a_cluster.py": {
        "test_each_snapshot_of_a_worker_adds_up_to_the_nanosecond": "buckets add up to nthreads x elapsed",
        "test_two_snapshots_differ_by_nthreads_times_an_independent_clock": "no bucket gains what no clock saw",
        "test_a_report_is_nthreads_times_the_time_inside_it": "a window's buckets are nthreads x its length",
        "test_a_task_counts_in_a_window_only_for_its_part_in_it": "tasks are cut at a window's ends",
        "test_a_report_across_a_kill_counts_the_worker_until_it_was_removed": "lost-worker, to the removal",
        "test_a_worker_that_joins_inside_a_window_counts_from_when_it_was_there": "workers that join",
    },
    "plugin/test_buckets_on_a_cluster.py": {
        "test_half_and_half_is_half_cpu": "thread-cpu and thread-noncpu of a task's thread",
        "test_a_coroutine_is_thread_noncpu_whose_cpu_is_not_measured": "tasks that are coroutines",
        "test_a_process_pools_task_is_thread_noncpu_whose_cpu_is_not_measured": "tasks in executors of processes",
        "test_a_task_that_secedes_is_in_its_slot_until_then_and_outside_afterwards[computing]": "tasks that secede",
        "test_making_an_actor_is_inside_and_its_methods_are_outside": "actors",
        "test_failed_tries_are_failed_and_the_last_one_counts": "failed",
        "test_a_task_cancelled_while_it_runs_is_cancelled_until_its_thread_ends": "cancelled",
        "test_a_paused_worker_loses_a_slot_for_each_task_that_is_ready_there": "paused",
        "test_waiting_for_a_slow_transfer_is_waiting_on_data_for_one_slot": "waiting-on-data",
        "test_a_task_held_back_by_a_resource_makes_one_slot_constrained": "constrained",
        "test_one_long_task_leaves_the_other_threads_idle": "idle",
        "test_the_time_without_tasks_of_a_client_is_no_work": "no-work",
        "test_results_lost_with_a_killed_worker_are_recomputed_and_its_time_is_lost": "recomputed",
    },
    "benchmarks/test_agreement_on_a_cluster.py": {
        "test_a_report_agrees_with_dasks_fine_metrics_and_spans[spill-disk-read]": "spill, as Dask sums it",
    },
    "plugin/test_adaptive_on_a_cluster.py": {
        "test_a_note_has_the_length_of_a_window_longer_than_asked_for": "a retrospect's window is as long as it says",
    },
    "plugin/test_repeats_on_a_cluster.py": {
        "test_a_window_has_the_repeats_inside_it": "repeated is distinguished from recomputed",
    },
    "plugin/test_gpu_on_a_cluster.py": {
        "test_gpu_time_of_tasks_reaches_the_report_and_the_metrics": "GPU time's way from a worker to a person",
    },
    "plugin/test_registration_on_a_cluster.py": {
        "test_one_call_meters_every_worker": "client.register_plugin",
        "test_a_preload_in_the_configuration_meters_the_cluster": "the scheduler's preload",
        "test_registering_with_other_options_replaces_them_and_the_accounts_go_on": "options that change",
        "test_unregistering_while_tasks_run_leaves_nothing_and_breaks_nothing": "nothing stays behind",
        "test_a_registration_amid_running_tasks_adopts_them": "a cluster that is already at work",
        "test_a_report_registers_the_plugin_for_itself_logs_that_once_and_removes_it": "efficiency_report alone",
        "test_an_exception_in_the_block_passes_through_and_the_report_is_made": "a block that fails",
    },
    "plugin/test_safety_on_a_cluster.py": {
        "test_a_failure_on_a_worker_is_logged_once_and_switches_its_meter_off[hooks._take]": "a meter that fails",
        "test_what_tasks_count_by_mistake_ends_no_computation_and_is_named_in_the_report": "labels without numbers",
        "test_a_failure_on_the_scheduler_is_logged_once_and_switches_the_meter_off[accounts.work._given]": "the same",
        "test_a_worker_that_does_not_answer_costs_the_timeout_and_counts_as_last_heard_of": "a worker that is silent",
    },
    "plugin/test_known_causes_on_a_cluster.py": {
        "test_waiting_for_a_slow_server_is_network[in recv]": "a cause of thread-noncpu, with its line",
    },
    "plugin/test_idle_causes_on_a_cluster.py": {
        "test_a_chain_lacks_parallelism_and_its_prefix_is_named": "causes of idle slots: the graph's",
        "test_slots_of_short_tasks_wait_for_a_busy_scheduler": "and the scheduler's",
    },
    "plugin/test_spans_on_a_cluster.py": {
        "test_two_clients_share_the_free_threads_while_both_have_work[True]": "several users of a cluster",
    },
    "plugin/test_spilling_on_a_cluster.py": {
        "test_slots_whose_tasks_are_done_while_the_loop_spills_are_spill": "an event loop that spills",
    },
    "preflights/test_preflight_on_a_cluster.py": {
        "test_workers_are_measured_without_a_task_and_two_are_too_few_to_tell": "a preflight",
    },
    "preflights/test_gate_on_a_cluster.py": {
        "test_a_slow_worker_is_named_and_retired_if_asked_for": "the gate of workers that join",
    },
    "live/test_activity_on_a_cluster.py": {
        "test_every_scrape_of_a_worker_adds_up_to_its_threads_times_its_time": "a live view's sum",
        "test_a_long_task_shows_at_every_scrape[sleeps]": "what runs is seen while it runs",
    },
    "report/test_reports_on_a_cluster.py": {
        "test_the_timeline_agrees_with_the_accounts": "the timeline",
        "test_a_name_in_html_gets_a_page_and_others_json": "the page and the file",
        "test_a_recorded_run_is_explained_saved_and_drawn": "from a recording to a path, a file and a page",
    },
    "runs/test_trace_on_a_cluster.py": {
        "test_every_task_has_one_run_that_succeeded_and_the_dependencies_of_the_graph": "a recorded run: its tasks",
        "test_every_instant_of_a_run_is_there_and_none_comes_before_its_cause": "its instants",
        "test_transfers_are_those_that_the_workers_log": "its transfers",
        "test_a_killed_worker_loses_its_runs_and_the_task_runs_again": "and what it says of a worker that died",
    },
    "runs/path/test_path_on_a_cluster.py": {
        "test_the_segments_tile_explain_and_replay_as_long[transfer-bound]": "a path covers its run; so does a replay",
        "test_a_worker_that_dies_is_on_the_path_with_its_task": "paths across a worker that died",
        "test_a_slow_link_is_transfer": "a delay that was put in is on the path, by its kind",
    },
    "live/test_prometheus_on_a_cluster.py": {
        "test_of_two_schedulers_in_one_process_the_last_is_exported_until_it_closes": "/metrics",
    },
    "live/bokeh/test_pages.py": {
        "test_registering_again_and_again_leaves_one_route": "the tab in Dask's dashboard",
    },
    "cli/test_inputs.py": {
        "test_a_cluster_that_records_is_reported_on_explained_and_judged": "commands that take a scheduler's address",
    },
    "live/test_stacks_on_a_cluster.py": {
        "test_a_worker_whose_event_loop_is_blocked_answers_with_the_call_that_blocks_it": "stacks of a blocked worker",
    },
    "live/test_top.py": {
        "test_once_as_json_is_one_object_whose_threads_add_up": "dask-efficiency top",
    },
    "report/test_demo.py": {
        "test_the_demo_saves_its_report_and_prints_the_command_that_shows_it": "dask-efficiency demo",
    },
    "plugin/worker/test_threads.py": {
        "test_tasks_on_executors_that_a_user_gave_are_metered_and_the_executors_are_left_alone": "users' executors",
    },
}


def is_listed(nodeid: str) -> bool:
    """Whether a test is among them, by its id or by that of its function."""
    file, _, name = nodeid.removeprefix("tests/").partition("::")
    listed = PROVES.get(file, {})
    return name in listed or name.partition("[")[0] in listed
