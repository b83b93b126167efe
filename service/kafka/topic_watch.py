"""Asks again and again which topics exist, on connections that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code

from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.clients import KeptAdmin, anybody
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error, translated
from snapreplay.service.kafka.requests import TopicIds
from snapreplay.service.kafka.shared import Shared

log = logging.getLogger("snapreplay.topics")

_DOING = "asking for topic ids"


class Told(NamedTuple):
    """The answer to a question for topics; `ids` of those that exist; why nothing is known about the `hidden` ones,
    which may exist or not."""

    ids: dict[str, str]
    hidden: dict[str, KafkaError]


class KafkaTopicWatch(KeptAdmin):
    """A watch, `ports.TopicWatch`. Connects with the first question, and again after one without an answer."""

    def __init__(self, settings: Settings, shared: Shared | None = None) -> None:
        super().__init__(settings, shared)
        self._asked = Asked(settings, "Describe")
        self._before: dict[str, str] = {}  # what was answered last
        self._repeats = Repeats()

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        async with translated(_DOING, self._asked, within_s=self._deadline_s, give_up=self.close):
            told = await told_ids(await self._connected(), sorted(names), self._before)
        for hidden in told.hidden.values():
            self._say(client_error(hidden, _DOING, self._asked))
        as_before = {name: self._before.get(name, "") for name in told.hidden}
        self._before = told.ids | as_before
        return dict(self._before)

    def _say(self, error: SnapreplayError) -> None:
        now = asyncio.get_running_loop().time()
        said = self._repeats.met(error.message, now)
        if said is not None:
            again = counted(said.left_out, "time")
            more = f" (repeated {again} in the last {now - said.said_at:.0f} s)" if said.left_out else ""
            log.warning("a topic cannot be watched: %s%s", error, more)


async def told_ids(client: AIOKafkaAdminClient, names: Sequence[str], before: Mapping[str, str]) -> Told:
    """Ask a broker; one that lags behind the controllers does not know the newest topics, or still names an old id.
    If the first one does not name a topic, or names another id than `before`, the others are asked."""
    first = await anybody(client._client)
    found, hidden = _told(await client._send_request_to_node(first, TopicIds(names)))
    told = {name: [found[name]] for name in found if before.get(name, found[name]) != found[name]}
    for broker in client._client.cluster.brokers():
        asked = [name for name in names if name not in found | hidden or name in told]
        if not asked:
            break
        if broker.nodeId == first:
            continue
        with contextlib.suppress(*CLIENT_ERRORS):  # it is away
            others = _told(await client._client.send(broker.nodeId, TopicIds(asked)))
            hidden |= others.hidden
            for name, topic_id in others.ids.items():
                told.get(name, []).append(topic_id)
                found.setdefault(name, topic_id)
    believed = {name: _believed(before[name], ids) for name, ids in told.items()}
    return Told(found | believed, {name: error for name, error in hidden.items() if name not in found})


def _believed(before: str, told: list[str]) -> str:
    """Believe another id than before if most of the brokers that answered named it: few lag, and not for long."""
    newest, count = Counter(told).most_common(1)[0]
    return newest if 2 * count > len(told) else before


def _told(answer: Any) -> Told:
    """Return ids and hidden topics: one that this user may not describe is not missing."""
    ids, hidden = {}, {}
    for code, name, topic_id, *_ in answer.topics:
        if topic_id or not code:
            ids[name] = topic_id
        elif code != UnknownTopicOrPartitionError.errno:
            hidden[name] = for_code(code)(name)
    return Told(ids, hidden)
