"""Rules of a batch: its transaction, its outputs, its place in the input."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PRODUCER = ("tests/service/kafka/test_producer.py", "tests/service/kafka/test_producer_ends.py")
FOLD = "tests/snapreplay/app/test_fold.py"
LIVE = "tests/service/live/test_pipeline.py"
COMMITTER = "tests/service/live/test_committer.py"

MUTANTS = (
    Mutant(
        "answers-unchecked",
        "every send's answer is checked before the commit: the client commits a transaction with holes",
        "service/kafka/producer.py",
        "                bases[target].append(await self._acknowledged(target, sent))",
        "                bases[target].append(0)",
        PRODUCER,
    ),
    Mutant(
        "producer-reused-after-an-unanswered-request",
        "a request without an answer ends the producer: its late copy could decide the next transaction",
        "service/kafka/producer.py",
        "                self._unanswered = self._unanswered or isinstance(request, _WATCHED)\n",
        "",
        PRODUCER,
    ),
    Mutant(
        "producer-kept-after-an-error",
        "whatever raised in a transaction ends the producer",
        "service/kafka/producer.py",
        "            await self.discard()\n            ended = clock or commit_error(",
        "            ended = clock or commit_error(",
        PRODUCER,
    ),
    Mutant(
        "record-blamed-for-the-clock",
        "a batch that is refused for this machine's clock is nobody's fault: it is tried again, nothing is skipped",
        "service/kafka/producer.py",
        "            clock = await self._clock_refused(error)\n",
        "            clock = None\n",
        ("tests/service/kafka/test_clocks.py",),
    ),
    Mutant(
        "kept-out-fences-its-successor",
        "whom Kafka kept out asks the log for a newer owner before it fences anybody",
        "service/core/ownership.py",
        " | AccessError() | ClockRefused() | RefusedTopic() as error",
        " | RefusedTopic() as error",
        ("tests/service/core/test_ownership.py",),
    ),
    Mutant(
        "commit-tried-again",
        "a commit in doubt is never tried again on the same producer: only the log knows",
        "service/live/committer.py",
        "        return await self._producer.commit(self._context.partition, outputs, records)\n",
        "        return await _again(self._producer, self._context.partition, outputs, records)\n",
        ("tests/simulation",),
        (
            (
                "service/live/committer.py",
                "class ProducerSpent(",
                "async def _again(producer, *batch):\n"
                "    from snapreplay.service.ports import CommitInDoubt\n\n"
                "    try:\n"
                "        return await producer.commit(*batch)\n"
                "    except CommitInDoubt:\n"
                "        return await producer.commit(*batch)\n\n\n"
                "class ProducerSpent(",
            ),
        ),
    ),
    Mutant(
        "increment-not-last",
        "the increment is the transaction's last record",
        "service/live/committer.py",
        "        records.append(LogRecord(topic, encode(increment), headers=headers_of(increment)))",
        "        records.insert(0, LogRecord(topic, encode(increment), headers=headers_of(increment)))",
        (COMMITTER, "tests/service/recovery/test_advance.py"),
    ),
    Mutant(
        "merged-before-the-answer",
        "a batch becomes the committed state only when its transaction was answered OK",
        "service/live/committer.py",
        "        try:\n            offsets = await pending.task\n",
        "        if pending.applied is not None:\n            self._store.merge()\n"
        "        try:\n            offsets = await pending.task\n",
        (COMMITTER, "tests/simulation"),
        (
            (
                "service/live/committer.py",
                "            self._store.merge()\n        self._check_offset",
                "            pass\n        self._check_offset",
            ),
        ),
    ),
    Mutant(
        "position-instead-of-the-next-offset",
        "an offset means next: what was applied is offset + 1",
        "snapreplay/app/fold.py",
        "                position = offset + 1\n",
        "                position = offset\n",
        (FOLD,),
    ),
    Mutant(
        "ranges-end-at-the-last-record",
        "ranges are half-open: the end is the next offset",
        "snapreplay/app/input_ranges.py",
        "        self._extend(last.topic, last.offset + 1, count)\n",
        "        self._extend(last.topic, last.offset, count)\n",
        ("tests/snapreplay/app/test_input_ranges.py", FOLD),
    ),
    Mutant(
        "output-encoded-at-batch-end",
        "an output is encoded when it is sent, by value",
        "snapreplay/app/out.py",
        '        value_bytes = _encode(topic, "value", value_codec, value)\n',
        '        value_bytes = _encode(topic, "value", value_codec, value)\n'
        "        self.late = [*getattr(self, 'late', ()), (len(self.staged), value_codec, value)]\n",
        ("tests/snapreplay/app/test_out.py", "tests/attacks/test_a5_live_objects.py"),
        (
            (
                "snapreplay/app/out.py",
                '    __slots__ = ("_ways", "input_key", "staged")\n',
                '    __slots__ = ("__dict__", "_ways", "input_key", "staged")\n',
            ),
            (
                "snapreplay/app/fold.py",
                "        outputs, out.staged = out.staged, []\n",
                "        outputs, out.staged = out.staged, []\n"
                "        for at, codec, value in getattr(out, 'late', ()):\n"
                "            if at < len(outputs) and value is not None:\n"
                "                import msgspec\n\n"
                "                outputs[at] = msgspec.structs.replace(\n"
                "                    outputs[at], value=codec.encode(value)\n"
                "                )\n"
                "        out.late = []\n",
            ),
        ),
    ),
    Mutant(
        "half-a-record-stays",
        "a record that fails leaves nothing: neither changes nor outputs",
        "snapreplay/app/fold.py",
        "            del staged[outputs_before:]\n",
        "",
        (FOLD,),
    ),
    Mutant(
        "a-failed-batch-keeps-its-changes",
        "a batch that failed is dropped whole before it runs again record by record",
        "snapreplay/app/fold.py",
        "            self._store.rollback()\n        else:\n            self._store.drop()\n",
        "            pass\n        else:\n            self._store.drop()\n",
        (FOLD,),
    ),
    Mutant(
        "pipelined-batch-reads-the-old-state",
        "the next batch is applied on top of the one that is committing",
        "service/live/pipeline.py",
        "        if not self._in_place:\n            await self._settle_and_mark(wait=True)\n",
        "        if not self._in_place:\n            self._store.drop()\n"
        "            await self._settle_and_mark(wait=True)\n",
        (LIVE,),
    ),
)
