"""Titles and advice, as text, of kinds of findings without a bucket, or with several."""

BESIDE_TEXT = """
killed-worker: Workers died, and their tasks were given up
    killed: Give workers more memory, or make partitions smaller: workers were killed for lack of memory.
    See why these workers died: in their nannies' logs, in the job's, and in what the tasks call.
refused: A task's input is larger than a worker's memory
    Reduce or slice it before one task takes it all, write it to storage, or give workers more memory.
error: Tasks failed
    retried: Catch it in the task, or pass fewer retries=: {failed_attempts} failed, and each took its time.
    Mend that first: nothing that needs their results ran.
never-ended: Tasks had not ended
    See what they wait for: client.call_stack() shows it while they run.
held-up: Tasks wait on paused workers
    Free the memory of these workers, or restart them: they start no task, and send none elsewhere.
stalled/deadlock: Tasks wait for tasks that find no thread
    Call secede() before they wait, or use worker_client(): what they wait for needs one of their threads.
stalled/lock: Tasks wait for a lock that is not released
    See who took it and did not release it: take it by `with`; acquire(timeout=...) fails instead.
stalled/no-worker: No worker may run these tasks
    Start a worker that has what they ask for (--resources, its name or host), or ask for less.
stalled/no-workers: No worker is there
    Start workers, or see in the logs of the cluster manager and of its jobs why none comes.
stalled/paused: Tasks stand still on paused workers
    Free the memory of these workers, or restart them: they start no task, and send none elsewhere.
stalled/event-loop: A worker's event loop is blocked
    Do that in a task, or in a thread of its own, or await it: the worker answers nobody meanwhile.
stalled/silent: A worker does not answer
    See if its process is stopped or its host gone, or if a function of C keeps the GIL; restart it.
stalled/fetch: Inputs of tasks do not come
    See the worker that has them, and the network between the two; restart one of them.
stalled/task: Tasks stand still
    Give what they wait for a timeout, and tasks retries=; `dask-efficiency stacks` shows the whole stack.
outstanding: Tasks were outstanding when the block ended
    Wait for them in it, by compute(), wait() or gather(): what they do later is not in this report.
interrupted: Tasks had not ended
    This report is of the time until then: what follows may be different.
one-by-one: The client waited for each result
    sent-by-library: Look for an option by which {sent_by} computes less: it sent {graphs}, one after the other.
    needs-last: Do more in each step, or run the loop in one task: each of {graphs} needs the one before.
    Send tasks together, as by client.map, and gather their results together: {graphs} came one by one.
small-tasks: Too many small tasks
    made-singly: Call {made_singly} once, with all parts or paths of a kind: {singles} dataframes were made one by one.
    many-operations: Do more in each task, by map_partitions() or map_blocks(): {small} are of {operations} operations.
    larger: {resized}.
    Make partitions bigger, or fuse tasks: those of {task} end before the scheduler hands out more.
heavy-tasks: Each task carries a large object
    Send it once, by client.scatter, and pass that as an argument: it is pickled anew for each task.
slow-tasks: Tasks take long to pickle
    Move their function to a module that workers import: it is pickled by value for each task.
pickled-results: Event loops pickle and unpickle results
    large-objects: Send arrays, or give {large_objects} a __sizeof__, if it has none: tasks go to large inputs.
    Send arrays or tables instead of Python objects, or fewer of these from worker to worker.
large-results: Large results go from worker to worker
    Give tasks only the part that they need, or reduce results before others take them.
whole-inputs: Tasks take a whole collection, put together
    Give each task its own part: one partition, by to_delayed(), or use map_partitions() or map_blocks().
large-graph: Graphs hold large objects
    Load the data in tasks, or send it ahead by client.scatter: the scheduler keeps graphs, and sends them on.
repeats: The same results were computed again
    Use persist() for what is used again.
no-workers: No worker was there
    came-and-went: Keep some, as by adapt(minimum=), or let them wait longer before they go: each start takes time.
    Start workers before the work, or scale up sooner.
client: No work on the cluster
    runs-locally: Compute with the client: it ran tasks by itself, as scheduler= or Dask's configuration says.
    fetches-objects: Reduce them on the workers, or make arrays of them: {objects} came to the client one by one.
    fetches: Reduce results before they come to the client, or write them to files from the workers.
    hashes: Load large data in tasks, or give it a name (name=, key=): the client hashes it to name it.
    computes: Do it in tasks, or while the cluster works.
    polls: Wait for results instead, by wait(), as_completed() or gather().
    sleeps: Avoid the sleep, or send the next work before it: nothing was outstanding.
    reads: Read in tasks, or while the cluster works.
    sends: Load large data in tasks, or from files: all that is sent passes through the client.
    imports-itself: Import modules before the work, or fewer of them.
    graphs-need-last: Do more in each step, and persist() what stays the same: each of {graphs} needs the one before.
    many-graphs: Send tasks together, as by client.map or one dask.compute(): each of {graphs} took the client time.
    pickles: Keep large objects out of graphs: load them in tasks, or send them ahead by client.scatter.
    built-of-much: Pass large lists as arrays, or by delayed(traverse=False): the client goes through them by item.
    made-singly: Call {made_singly} once, with all parts or paths of a kind: {singles} dataframes were made one by one.
    long-built: Build fewer tasks, by collections' own operations instead of a loop, and compute all of them together.
    graph-built: Build fewer tasks: bigger partitions, and collections' own operations instead of a loop.
    lets-go: Submit fewer and larger tasks: the client tells the scheduler of each future that it lets go of.
    optimizes: Build graphs of fewer operations, and compute several results by one dask.compute().
    uploads: Keep large objects out of graphs: load them in tasks, or send them ahead by client.scatter.
    calls: Ask Dask for more at a time: each call waits until the client's event loop has answered.
    gathers: Reduce results before they come to the client, or write them to files from the workers.
    See what the client does between its calls to Dask.
leak: Memory of workers grows, and stays
    Find what keeps it, such as caches and global lists; until then, restart workers (--lifetime).
over-limit: Workers need more memory than they have
    as: spill
    Give workers {enough} each, make partitions smaller, or persist less: they have {memory_limit}.
spare-memory: Workers have memory to spare
    Ask for less memory, or use more threads in each worker.
seceded: Only tasks that had seceded ran
    Let them compute before secede(), or after rejoin(): in between they hold no thread, and are in no sum.
computing: Computing in Python
    Use functions of whole arrays or columns, or compile it by numba: Python steps hold the GIL.
busy: Mostly computing
    spare-cores: Use more threads or workers, as {threads} threads have {cores} cores, and do once what tasks repeat.
    many-threads: Do once what its tasks repeat. More threads than cores, {threads} for {cores}, are no faster.
    Do once what its tasks repeat, and no more than is needed: else, only more cores help.
busy-again: The same functions compute for several computations, as much for each
    Call persist() on what these have in common, or ask for all by one dask.compute(): each computes it again.
computed-first: Computed before the result was asked for
    Persist what it needs before, or do without it: it computes all that it needs, and keeps nothing.
loading: Loading data
    Load only what is used, and what tasks share not again in each: once in a worker, or in a task of its own.
shuffling: Shuffling rows between workers
    Shuffle fewer columns, filter before, or merge with one partition: a small table needs no shuffle.
reads-again: The same files are read again and again
    Use chunks as the files have them, or load each file once, in one task that the others depend on.
gpu-idle: GPUs idle
    See what tasks do between their kernels, and give GPUs more work at a time.
"""
