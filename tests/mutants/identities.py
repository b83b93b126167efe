"""Rules of identity: a name and an offset are none, a topic's id and the record at an offset are."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

GUARD = "tests/service/live/test_input_guard.py"
INPUTS = "tests/service/recovery/test_inputs.py"

MUTANTS = (
    Mutant(
        "ids-not-compared",
        "where the last record is gone, another id alone makes it another input",
        "service/recovery/inputs.py",
        "            if change is not None and witness is Witness.NONE and not from_start:",
        "            if False:",
        (INPUTS,),
    ),
    Mutant(
        "no-comparison-after-a-standstill",
        "after a standstill the inputs are compared before the next commit",
        "service/live/input_guard.py",
        "        return self._told or self._stood_still\n",
        "        return self._told\n",
        (GUARD,),
    ),
    Mutant(
        "no-comparison-after-a-disturbance",
        "after a broken connection or a refused fetch they are, too",
        "service/live/input_guard.py",
        "self._reader.disturbances != self._disturbances:",
        "self._reader.disturbances < self._disturbances:",
        (GUARD,),
    ),
    Mutant(
        "the-batch-itself-not-compared",
        "what is to be committed must still be in the input, not only what was committed",
        "service/recovery/inputs.py",
        "in (*chain.last.anchors.items(), *batch.items()):",
        "in chain.last.anchors.items():",
        (GUARD,),
    ),
    Mutant(
        "gap-not-looked-into",
        "a copy has no record where there was none",
        "service/recovery/inputs.py",
        "reader.read(partition, anchor.offset + 1, position)",
        "reader.read(partition, position, position)",
        ("tests/service/recovery/test_inputs.py",),
    ),
    Mutant(
        "fetched-by-name",
        "a fetch names the topic by its id",
        "service/kafka/fetch_by_id.py",
        "        return FetchById(fetch, self.ids) if known else fetch",
        "        return fetch",
        ("tests/service/kafka/test_fetch_by_id.py",),
    ),
    Mutant(
        "live-reads-by-name",
        "a live partition reads the topics that its chain records",
        "service/live/input_guard.py",
        'topic_ids={name: ids.get(name, "") for name in positions}',
        "topic_ids={}",
        (GUARD, "tests/simulation"),
    ),
    Mutant(
        "new-ids-not-recorded",
        "a faithful copy's id is recorded from the next increment on",
        "service/recovery/driver.py",
        "live.fallback_from, moved, topic_ids)",
        "live.fallback_from, moved)",
        (GUARD,),
    ),
)
