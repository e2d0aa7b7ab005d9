"""Questions about threads without a cluster: a worker that answers, a blocked one, and a silent one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.thread_looks import LOOP, OTHER, TASK, ThreadLook, decode_looks, encode_looks
from dask_efficiency.plugin.scheduler import stack_questions
from dask_efficiency.plugin.scheduler.stack_questions import StackQuestions

ASKED = {"workers": None, "prefix": None, "native": None}
WAITS = (Frame("wait", "/home/me/job.py", 3),)


def looks(*found: ThreadLook, **more: Any) -> dict[str, Any]:
    return {**encode_looks(found, {}), "not_native": "", **more}


def task(ident: int, kind: str = TASK) -> ThreadLook:
    prefix, key = ("wait", f"wait-{ident}") if kind == TASK else ("", "")
    return ThreadLook("", kind, "thread", ident, prefix, key, 10**9, "lock" if kind == TASK else "", False, WAITS)


def questions(**answers: Any) -> StackQuestions:
    """Of workers by name, each with its answer, an error, or None for none at all."""
    workers = {
        f"tcp://{name}": SimpleNamespace(name=name, host="host", pid=number) for number, name in enumerate(answers)
    }
    prefix = SimpleNamespace(state_counts={"memory": 4}, all_durations={"compute": 8.0})
    scheduler = SimpleNamespace(workers=workers, task_prefixes={"wait": prefix})
    meter: Any = SimpleNamespace(scheduler=scheduler, options=SimpleNamespace(source=True))

    async def ask_one(address: str, question: dict[str, Any], seconds: float) -> Any:
        assert question["action"] == "stacks"
        answer = answers[address.removeprefix("tcp://")]
        if answer is None:
            await asyncio.sleep(100)
        if isinstance(answer, Exception):
            raise answer
        return answer

    halves: Any = SimpleNamespace(ask_one=ask_one)
    return StackQuestions(meter, halves)


def asked(found: StackQuestions, **more: Any) -> dict[str, Any]:
    return asyncio.run(found.answer({**ASKED, **more}))


def test_threads_come_with_their_worker_and_what_such_tasks_usually_take() -> None:
    reply = asked(questions(a=looks(task(1)), b=looks(task(1))), workers=["a", "b"])
    found, _ = decode_looks(reply)
    assert sorted((look.worker, look.key) for look in found) == [("a", "wait-1"), ("b", "wait-1")]
    assert reply["usual"] == {"wait": 2.0}
    assert (reply["workers"], reply["silent"], reply["more"]) == (2, {}, 0)


def test_who_does_not_answer_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_questions, "ANSWER_SECONDS", 0.01)
    found = questions(a=None, b=OSError("it vanished"), c={"threads": 1}, d=TimeoutError())
    assert asked(found, prefix="wait")["silent"] == {
        "a": "no answer in 0.01 s",
        "b": "it vanished",
        "c": "frames is None; expected a list of at most 10000",
        "d": "no answer in 0.01 s",
    }
    with pytest.raises(ValueError, match="no worker is called 'z'; expected a name or address, such as 'a', 'b', 'c'"):
        asked(found, workers=["z"])


def test_the_thread_of_a_blocked_worker_gets_the_question_and_its_next_look_is_the_answer() -> None:
    found = questions(a=None)
    told = {"worker": "tcp://a", "asked": {}, "looks": looks(task(1, LOOP))}

    async def blocked() -> tuple[Any, Any]:
        telling = asyncio.ensure_future(found.take_aside(told))
        await asyncio.sleep(0)
        asking = asyncio.ensure_future(found.answer({**ASKED, "prefix": "wait"}))
        question = await telling
        later = asyncio.ensure_future(found.take_aside({**told, "asked": question["ask"], "looks": looks(task(7))}))
        reply = await asking
        later.cancel()
        return question, reply

    question, reply = asyncio.run(blocked())
    assert question == {"ask": {"prefix": "wait", "native": False, "source": True}}
    assert [look.key for look in decode_looks(reply)[0]] == ["wait-7"]
    assert reply["silent"] == {}


def test_a_question_is_asked_again_on_a_new_connection_and_answered_by_its_own_look() -> None:
    found = questions(a=None)

    def told(of: Any, *found: ThreadLook) -> dict[str, Any]:
        return {"worker": "tcp://a", "asked": of, "looks": looks(*found)}

    async def blocked() -> tuple[Any, Any]:
        asking = asyncio.ensure_future(found.answer({**ASKED, "prefix": "wait"}))
        await asyncio.sleep(0)
        first = await found.take_aside(told({}))
        again = await found.take_aside(told({}))
        other = asyncio.ensure_future(found.take_aside(told({"prefix": "other"}, task(7))))
        last = asyncio.ensure_future(found.take_aside(told(again["ask"], task(8))))
        reply = await asking
        other.cancel()
        last.cancel()
        return (first, again), reply

    (first, again), reply = asyncio.run(blocked())
    assert first == again == {"ask": {"prefix": "wait", "native": False, "source": True}}
    assert [look.key for look in decode_looks(reply)[0]] == ["wait-8"]


def test_a_blocked_worker_that_nobody_asks_waits_for_a_while_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_questions, "ASIDE_SECONDS", 0.01)
    found = questions(a=None)
    assert asyncio.run(found.take_aside({"worker": "tcp://a", "asked": {}, "looks": looks()})) == {"ask": {}}
    assert found._asides == {}
    with pytest.raises(RefusedPayload, match="worker is 'tcp://z'; expected the address of a worker"):
        asyncio.run(found.take_aside({"worker": "tcp://z", "asked": {}, "looks": looks()}))


def test_a_thread_that_several_workers_of_a_process_tell_of_is_there_once() -> None:
    found = questions(a=looks(task(1), task(2, OTHER)), b=looks(task(1, OTHER), task(2)))
    for ws in found._scheduler.workers.values():
        ws.pid = 7
    reply = asked(found, workers=["a", "b"])
    assert sorted((look.worker, look.key) for look in decode_looks(reply)[0]) == [("a", "wait-1"), ("b", "wait-2")]


def test_the_schedulers_own_threads_are_told_unless_only_some_are_asked_for() -> None:
    found = questions(a=looks())
    own = [look for look in decode_looks(asked(found))[0] if look.kind == LOOP]
    assert [look.worker for look in own] == [""]
    assert asked(found, prefix="wait")["threads"] == []
