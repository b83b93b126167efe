"""Questions that are asked together."""

import asyncio
import weakref

import pytest

from snapreplay.service.kafka.log_ends import Together
from tests.simulation.loop import VirtualLoop


class Asked:
    """Answers when `answer` is set."""

    def __init__(self):
        self.questions, self.may_answer = [], asyncio.Event()

    async def __call__(self, keys):
        self.questions.append(sorted(keys))
        await self.may_answer.wait()
        if "bad" in keys:
            raise LookupError("bad")
        return {key: key.upper() for key in keys if key != "unknown"}


async def begun(together, *keys, wait_s=0.0):
    task = asyncio.create_task(together.ask(keys, wait_s))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_who_comes_during_a_question_is_answered_by_the_next_one():
    """Its answer would otherwise be older than the question; everybody else who waits is in that one, too."""
    asked = Asked()
    together = Together(asked)
    first = await begun(together, "a")
    later = [await begun(together, key) for key in ("a", "b", "unknown")]
    asked.may_answer.set()
    assert await first == {"a": "A"}
    assert [await each for each in later] == [{"a": "A"}, {"b": "B"}, {}]
    assert asked.questions == [["a"], ["a", "b", "unknown"]]
    assert await together.ask(["c"]) == {"c": "C"}


async def test_all_callers_get_an_error_and_the_next_question_is_asked_again():
    """A cancelled one takes no other one with it; without anybody who waits, a question ends."""
    asked, before = Asked(), asyncio.all_tasks()
    together = Together(asked)
    first, second = await begun(together, "a"), await begun(together, "bad")
    third = await begun(together, "b")
    first.cancel()
    asked.may_answer.set()
    for each in (second, third):
        with pytest.raises(LookupError):
            await each
    assert await together.ask(["b"]) == {"b": "B"}
    asked.may_answer.clear()
    alone = await begun(together, "c")
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    assert asyncio.all_tasks() == before


def test_a_question_waits_for_others():
    """For the given time. Questions that arrive meanwhile join it."""

    async def both() -> None:
        asked = Asked()
        asked.may_answer.set()
        together = Together(asked)
        first, second = await begun(together, "a", wait_s=0.05), await begun(together, "b", wait_s=0.05)
        assert not asked.questions
        assert (await first, await second) == ({"a": "A"}, {"b": "B"})
        assert asked.questions == [["a", "b"]]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:  # no time passes between the two questions
        runner.run(both())


async def test_questions_that_need_no_turn_are_asked_at_the_same_time():
    asked = Asked()
    together = Together(asked, in_turn=False)
    first, second = await begun(together, "a"), await begun(together, "b")
    assert asked.questions == [["a"], ["b"]]
    asked.may_answer.set()
    assert (await first, await second) == ({"a": "A"}, {"b": "B"})


async def test_an_answer_is_not_kept():
    """It may be large."""

    class Answer(dict[str, str]):
        pass

    kept: list[weakref.ref[Answer]] = []

    async def ask(keys):
        answer = Answer(dict.fromkeys(keys, "there"))
        kept.append(weakref.ref(answer))
        return answer

    together = Together(ask)
    assert await together.ask(["a"]) == {"a": "there"}
    await asyncio.sleep(0)  # the loop has a callback that knows it
    assert kept[0]() is None
