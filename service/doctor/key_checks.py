"""The check whether the inputs of an app have a key in the same partition. Producers choose it by a hash of the key:
Java's clients and ours by murmur2, librdkafka (Python's confluent-kafka, Go, .NET, Node.js) by CRC-32 unless configured
otherwise. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from snapreplay.service.core.partitioners import HASHES, MURMUR2, misplaced, shown_key
from snapreplay.service.doctor.facts import Diagnosis, DoctorFacts

KEYS_MIN = 10
"""Distinct keys that show the hash of an input. By chance 10 keys in two partitions fit once in 1,024."""
SHARE_MIN = 0.9
"""The share of the keys that must fit: some were written before the topic got more partitions."""
APART_MIN = 0.25
"""The share of the keys of two inputs that lie in different partitions. Other hashes put half of them apart in a topic
of two partitions, and more in larger ones."""


def keyed_alike(facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Check that producers of several inputs put a key into the same partition. One input alone may be partitioned in
    any way, and so may all of them if it is the same way."""
    keys = {topic: found for topic, found in facts.keys.items() if found and topic in facts.topics}
    declared = [diagnosis for topic, found in keys.items() for diagnosis in _not_as_declared(facts, topic, found)]
    yield from declared
    if len(keys) < 2:
        return
    counts = {topic: facts.topics[topic].partition_count for topic in keys}
    told = {topic: _hash_of(found, counts[topic]) for topic, found in keys.items()}
    by_murmur2 = [topic for topic, name in told.items() if name == MURMUR2]
    for topic, name in told.items():
        if topic in facts.internal or any(each.where == topic for each in declared):
            continue
        others = [each for each in by_murmur2 or keys if each != topic]
        proof = _in_two_partitions(topic, others, keys)
        # An input whose records get other keys in an internal topic may be hashed in any way.
        lies_elsewhere = not facts.internal and name is not None and (bool(by_murmur2) or _differ(name, others, told))
        if name != MURMUR2 and (proof or lies_elsewhere):
            yield _diagnosis(topic, name, proof or _misplaced(keys[topic], counts[topic]))


def _not_as_declared(facts: DoctorFacts, topic: str, keys: Mapping[bytes, int]) -> Iterator[Diagnosis]:
    """Name a topic with keys where the partitioner that the app declares for it does not put them."""
    found = facts.app.declaration(topic) if facts.app else None
    if found is None or found.partitioner is None:
        return
    count, name = facts.topics[topic].partition_count, found.partitioner
    proofs = [proof for key, at in sorted(keys.items()) if (proof := misplaced(key, at, count, name))]
    if proofs:
        yield Diagnosis(
            "keys",
            topic,
            f"its producer does not partition by {name}, as the app declares: {proofs[0]}; so do {len(proofs)} of"
            f" {len(keys)} keys that were sampled",
            f"set its producer's partitioner to {name}; or declare its partitioner, if no other input has the same"
            " keys. Existing records stay where they are: copy them to a new topic",
        )


def _hash_of(keys: Mapping[bytes, int], count: int) -> str | None:
    """Return the hash by which the keys lie where they do, "" for none of those known; None: there are too few keys to
    say."""
    if len(keys) < KEYS_MIN:
        return None
    for name, each in HASHES.items():
        if sum(each.partition(key, count) == at for key, at in keys.items()) >= SHARE_MIN * len(keys):
            return name
    return ""


def _differ(name: str, others: list[str], told: Mapping[str, str | None]) -> bool:
    return name != "" and any(told[each] not in (name, "", None) for each in others)


def _in_two_partitions(topic: str, others: list[str], keys: Mapping[str, Mapping[bytes, int]]) -> str:
    """Name a key that another input has in another partition; "": too few of their common keys differ."""
    for other in others:
        both = keys[topic].keys() & keys[other].keys()
        apart = sorted(key for key in both if keys[topic][key] != keys[other][key])
        if apart and len(apart) >= APART_MIN * len(both):
            key = apart[0]
            here, there = keys[topic][key], keys[other][key]
            return f"key {shown_key(key)} is in partition {here}, but in partition {there} of {other}"
    return ""


def _misplaced(keys: Mapping[bytes, int], count: int) -> str:
    elsewhere = {key: at for key in sorted(keys) if (at := HASHES[MURMUR2].partition(key, count)) != keys[key]}
    key, at = next(iter(elsewhere.items()))
    return (
        f"key {shown_key(key)} is in partition {keys[key]}, but murmur2 gives partition {at}; {len(elsewhere)} of"
        f" {len(keys)} sampled keys are in other partitions than murmur2 gives"
    )


def _diagnosis(topic: str, name: str | None, proof: str) -> Diagnosis:
    by = f", as {HASHES[name].used_by} does ({name})" if name else ""
    return Diagnosis(
        "keys",
        topic,
        f"its producer puts keys into other partitions than those of the other inputs{by}: {proof}. A handler"
        " does not find the entry that another input has stored under such a key: each partition has its own state",
        "set `partitioner=murmur2_random` in a producer that uses librdkafka, or Java's default partitioner in any"
        " other one. Existing records stay where they are: copy them to a new topic with unchanged keys, and name"
        " that topic in App(inputs=[…])",
    )
