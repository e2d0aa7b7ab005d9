"""A process that is told to end does what is left to do, and ends as it would have."""

import signal
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import os, signal, sys, threading, time
from dask_efficiency.report import termination
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, and so would what it starts
def last_words(name, die):
    print("told", name, flush=True)
    die()
def wait():
    time.sleep(100)
"""
WORDS = "termination.before_termination(last_words)"
RUNNER = """
        from dask_efficiency.report.runner import Runner, ScriptRun
        runner, began = Runner(ScriptRun("script.py")), threading.Event()"""

ENDS = {
    "by SIGTERM": (f"{WORDS}; os.kill(os.getpid(), signal.SIGTERM); wait()", "told SIGTERM\n", signal.SIGTERM),
    "by SIGHUP": (f"{WORDS}; os.kill(os.getpid(), signal.SIGHUP); wait()", "told SIGHUP\n", signal.SIGHUP),
    "by the second one at once": (
        """
        termination.before_termination(lambda name, die: (os.kill(os.getpid(), signal.SIGTERM), wait()))
        os.kill(os.getpid(), signal.SIGTERM)
        """,
        "",
        signal.SIGTERM,
    ),
    "in any case": (
        """
        termination.PATIENCE = 0.1
        termination.before_termination(lambda name, die: threading.Event().wait())
        os.kill(os.getpid(), signal.SIGTERM)
        """,
        "",
        signal.SIGTERM,
    ),
    "while it ignores it": (
        f"signal.signal(signal.SIGHUP, signal.SIG_IGN); {WORDS}; os.kill(os.getpid(), signal.SIGHUP); print('went on')",
        "went on\n",
        0,
    ),
    "by its own handler": (
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); {WORDS}; os.kill(os.getpid(), signal.SIGTERM); wait()",
        "",
        -3,
    ),
    "by a handler that calls the one before": (
        f"""
        {WORDS}
        before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: (print("own", flush=True), before(*given)))
        os.kill(os.getpid(), signal.SIGTERM)
        wait()
        """,
        "own\ntold SIGTERM\n",
        signal.SIGTERM,
    ),
    "a child of it": (
        f"""
        {WORDS}
        began, begin = os.pipe()
        if child := os.fork():
            os.read(began, 1)
            os.kill(child, signal.SIGTERM)
            print(os.WTERMSIG(os.waitpid(child, 0)[1]))
        else:
            os.write(begin, b"x")
            wait()
        """,
        "15\n",
        0,
    ),
    "by a timeout that fails": ("termination.after(0.0, lambda name, die: 1 / 0); wait()", "", -124),
    "by a timeout that is telling when the script ends": (
        f"""
        {RUNNER}
        def tell(**how):
            began.set()
            time.sleep(0.5)
            print("told", how["failed"])
        runner._finish = tell
        termination.after(0.0, runner.timed_out)
        began.wait()
        runner.finish(failed=False)
        """,
        "told True\n",
        -124,
    ),
    "by itself if it is telling when its timeout comes": (
        f"""
        {RUNNER}
        def timed_out(*given):
            began.set()
            runner.timed_out(*given)
        def tell(**how):
            termination.after(0.0, timed_out)
            began.wait()
            time.sleep(0.5)
            print("told", how["failed"])
        runner._finish = tell
        runner.finish(failed=False)
        """,
        "told False\n",
        0,
    ),
    "by its timeout if it does not end after it told": (
        f"""
        {RUNNER}
        from dask_efficiency.report import runner as module
        module.PATIENCE = 0.0
        runner._finish = lambda **how: print("told", how["failed"])
        runner.finish(failed=False)
        termination.after(0.0, runner.timed_out)
        wait()
        """,
        "told False\n",
        -124,
    ),
    "outside the main thread": (
        f"""
        thread = threading.Thread(target=lambda: {WORDS})
        thread.start()
        thread.join()
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        """,
        "True\n",
        0,
    ),
}


@pytest.mark.parametrize(("code", "printed", "ended_by"), ENDS.values(), ids=ENDS)
def test_a_process_ends_as_it_would_have(code: str, printed: str, ended_by: int) -> None:
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == (printed, -ended_by), done.stderr
