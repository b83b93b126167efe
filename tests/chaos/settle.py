"""The end, after the last fault: does everything come back, by itself and in bounded time?"""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka import KafkaException

from tests.chaos.world import World
from tests.support.deadlines import scaled

SETTLE_S = 120.0
LOOK_S = 0.2
SAY_S = 5.0
STEADY_LOOKS = 3
"""In a row without a finding: a partition may be LIVE twice for a moment after it moved."""


def settle(world: World, inputs: tuple[str, ...]) -> float:
    """Wait until nothing is left to wait for; seconds it took. What is still wrong after two minutes is a problem."""
    began = time.monotonic()
    good, said_at = 0, began
    while good < STEADY_LOOKS:
        for slot in world.slots:
            slot.check()
        findings = unsettled(world, inputs)
        good = 0 if findings else good + 1
        if findings and time.monotonic() - said_at > SAY_S:
            said_at = time.monotonic()
            world.timeline.note("run", f"not settled: {'; '.join(findings)}")
        if time.monotonic() - began > scaled(SETTLE_S):
            for finding in findings:
                world.timeline.problem(f"{scaled(SETTLE_S):.0f} s after the last fault: {finding}")
            break
        time.sleep(LOOK_S)
    seconds = time.monotonic() - began
    world.timeline.note("run", f"settled after {seconds:.1f} s")
    return seconds


def unsettled(world: World, inputs: tuple[str, ...]) -> list[str]:
    """Return what is not as it should be once everything is healed and no input comes any more."""
    try:
        ends = {topic: _end(world, topic) for topic in inputs}
        pinned = [t for t in world.topics if not t.startswith("__") and _pinned(world, t)]
    except KafkaException as error:
        return [f"the cluster does not answer: {error}"]
    findings = [f"{topic}: last stable offset below the high watermark" for topic in pinned]
    answers = [slot.process.get("/api/v1/partitions") for slot in world.slots]
    silent = [s.process.name for s, a in zip(world.slots, answers, strict=True) if a is None]
    items = [item for answer in answers if answer for item in answer["items"]]
    live = Counter(item["partition"] for item in items if item["phase"] == "live")
    findings += [f"{name} does not answer" for name in silent]
    findings += [
        f"partition {partition} is live in {live[partition]} processes"
        for partition in range(world.partitions)
        if live[partition] != 1
    ]
    findings += [
        f"partition {item['partition']} is at {each['position']} of {each['topic']}, its end is {end}"
        for item in items
        if item["phase"] == "live"
        for each in item["inputs"]
        if each["position"] != (end := ends[each["topic"]][item["partition"]])
    ]
    return findings


def _end(world: World, topic: str) -> list[int]:
    return world.facts.ends(topic, world.partitions, committed=False)


def _pinned(world: World, topic: str) -> bool:
    return _end(world, topic) != world.facts.ends(topic, world.partitions, committed=True)
