"""Rules of full snapshots: the mark, the pointer, what is kept."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SHARDS = "tests/snapreplay/state/test_shards.py"
KEEPER = "tests/service/live/test_snapshot_scheduler.py"
WRITER = "tests/service/publish/test_snapshot_writer.py"

MUTANTS = (
    Mutant(
        "mark-forgotten",
        "from the mark on, writes go beside the frozen shards",
        "snapreplay/state/shards.py",
        "        self._targets = [{} for _ in self._shards]\n",
        "",
        (SHARDS,),
    ),
    Mutant(
        "earlier-snapshot-not-folded-in",
        "a mark freezes what is there now, also what still lies on top of an earlier snapshot",
        "snapreplay/state/shards.py",
        "        self._settle(None)\n",
        "",
        (SHARDS,),
    ),
    Mutant(
        "marked-over-an-uncommitted-batch",
        "the mark is taken when nothing uncommitted is merged",
        "service/live/pipeline.py",
        "        if self._committer.idle:\n            self.snapshots.begin_if_due()\n",
        "        self.snapshots.begin_if_due()\n",
        ("tests/service/live/test_pipeline.py", KEEPER, "tests/attacks", "tests/simulation"),
        (
            (
                "snapreplay/state/shards.py",
                '        if self._undo is not None:\n            raise RuntimeError("a batch waits: a snapshot',
                '        if False:\n            raise RuntimeError("a batch waits: a snapshot',
            ),
        ),
    ),
    Mutant(
        "undo-forgets-the-digest",
        "a dropped batch leaves neither entries nor digest",
        "snapreplay/state/shards.py",
        "        self.digest, self.size_bytes = undo.digest, undo.size_bytes\n",
        "        self.size_bytes = undo.size_bytes\n",
        (SHARDS, "tests/snapreplay/state/test_mapstore.py"),
    ),
    Mutant(
        "dropped-entries-stay",
        "a dropped batch leaves no entry behind",
        "snapreplay/state/shards.py",
        "                target.pop(key, None)\n            else:\n                target[key] = old\n",
        "                pass\n            else:\n                target[key] = old\n",
        (SHARDS,),
    ),
    Mutant(
        "no-undo-before-the-last-step",
        "a batch that is sealed half-way is not shown as committed, and can be dropped",
        "snapreplay/state/shards.py",
        "        self._undo = _Undo(places, self.digest, self.size_bytes)\n",
        "        before = _Undo(places, self.digest, self.size_bytes)\n",
        ("tests/snapreplay/state/test_mapstore.py", "tests/simulation"),
        (
            (
                "snapreplay/state/shards.py",
                "            yield\n        for key in unchanged:\n",
                "            yield\n        self._undo = before\n        for key in unchanged:\n",
            ),
        ),
    ),
    Mutant(
        "manifest-first",
        "the manifest is written last: with all offsets of its chunks",
        "service/publish/snapshot_writer.py",
        "        await self._write_chunks(self._appender)\n        manifest = self._manifest()\n",
        "        manifest = self._manifest()\n        await self._write_chunks(self._appender)\n",
        (WRITER,),
    ),
    Mutant(
        "pointer-before-the-answer",
        "the pointer holds the offset from the send's answer",
        "service/publish/snapshot_writer.py",
        "            manifest_offset=offset,\n",
        "            manifest_offset=max((ref.offset for ref in self.refs), default=-1),\n",
        (WRITER, KEEPER),
    ),
    Mutant(
        "unknown-offset-pointed-to",
        "an acknowledged offset below 0 abandons the snapshot",
        "service/publish/snapshot_writer.py",
        "        if offset < 0:\n",
        "        if offset < -1:\n",
        (WRITER,),
    ),
    Mutant(
        "image-unchecked",
        "what was written adds up to the digest of the committed batch",
        "snapshots/format/chunks.py",
        "total = total.plus((yield from _verifying(part, where)))",
        "total = total.plus(Digest(len(part.entries), part.digest_a, part.digest_b))",
        (WRITER, "tests/attacks/test_a7_a_snapshot_is_what_was_written.py"),
    ),
    Mutant(
        "trim-one-too-far",
        "the increment of the oldest kept snapshot stays",
        "snapshots/retention.py",
        "increments_offset=max(0, min(oldest_offset, last_offset - 1))",
        "increments_offset=max(0, min(oldest_offset + 1, last_offset - 1))",
        ("tests/snapshots/test_retention.py",),
    ),
    Mutant(
        "trim-by-the-manifest",
        "the floor is the lowest chunk of the kept snapshots, not their manifest",
        "snapshots/retention.py",
        "min(min(p.first_chunk_offset, p.manifest_offset) for p in kept)",
        "min(p.manifest_offset for p in kept)",
        ("tests/snapshots/test_retention.py",),
    ),
    Mutant(
        "trim-for-snapshots-that-are-gone",
        "nothing is trimmed for snapshots whose topic was deleted and created again",
        "service/live/trimming.py",
        "changes(names, last.topic_ids, ids)",
        "changes(names, {}, ids)",
        ("tests/service/live/test_trimming.py",),
    ),
    Mutant(
        "unpointed-snapshots-counted",
        "only snapshots that a committed increment points to are kept or free anything",
        "service/live/snapshot_scheduler.py",
        "            self._trimmer.pointed(increment, self._committer.chain.last_offset)\n",
        "            kept = [increment.pointers[0]] * len(increment.pointers)\n"
        "            import msgspec\n\n"
        "            self._trimmer.pointed(\n"
        "                msgspec.structs.replace(increment, pointers=kept),\n"
        "                self._committer.chain.last_offset,\n"
        "            )\n",
        (KEEPER, "tests/attacks/test_a9_snapshots_nobody_points_to.py"),
    ),
    Mutant(
        "damaged-chunk-accepted",
        "every chunk is checked by its crc32 before it is used",
        "snapshots/format/chunks.py",
        "    if (len(value), crc32(value)) != (ref.size_bytes, ref.crc32):",
        "    if len(value) != ref.size_bytes:",
        ("tests/snapshots/format/test_chunks.py", "tests/damage"),
    ),
    Mutant(
        "damaged-changes-accepted",
        "changes records are counted and checked by the crc32 in their increment",
        "snapshots/format/changes.py",
        "    if computed != ref.crc32:",
        "    if computed == -1:",
        ("tests/snapshots/format/test_changes.py",),
    ),
    Mutant(
        "trim-after-a-standstill",
        "what was asked before a standstill is no reason to trim",
        "service/live/trimming.py",
        "                    if stood_still:\n",
        "                    if False:\n",
        ("tests/service/live/test_trimming.py",),
    ),
)
