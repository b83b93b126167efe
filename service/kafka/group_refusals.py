"""The reasons why a coordinator refuses a join. The client gives an error code; this module asks the brokers for the
setting or the member behind it."""

from __future__ import annotations

from aiokafka import errors as kafka

from snapreplay.counted import some
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.groups import GroupSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.core import broker_limits
from snapreplay.service.core.kafka_errors import GroupRefused
from snapreplay.service.kafka.admin import NEWER_PROTOCOL, ForeignMember, KafkaAdmin
from snapreplay.service.kafka.errors import GroupFull

GROUP_SIZE = "group.max.size"
DEFAULT_SESSION_MS = GroupSettings().session_timeout_ms


async def refused_join(settings: Settings, group_id: str, error: BaseException) -> GroupRefused | None:
    """Return the refusal behind an error of a join; None: the error may pass by itself."""
    admin = KafkaAdmin(settings)
    is_full = GroupFull.__name__ in str(error)  # the client wraps it
    match error:
        case kafka.InvalidSessionTimeoutError():
            return _beyond_limits(settings, group_id, await _broker_config(admin))
        case kafka.KafkaError() if is_full or isinstance(error, kafka.InconsistentGroupProtocolError):
            found = await _foreign(admin, group_id, is_foreign=not is_full)
            if found or not is_full:
                return foreign_members(settings, group_id, found)
            limit = (await _broker_config(admin)).get(GROUP_SIZE)
            return GroupRefused(
                f"group {group_id} has as many members as {GROUP_SIZE}{f'={limit}' if limit else ''} of the brokers"
                " allows: this process cannot join it",
                hint=f"raise {GROUP_SIZE} on every broker; or run fewer processes of the app",
            )
        case _:
            return None


def foreign_members(settings: Settings, group_id: str, found: list[ForeignMember]) -> GroupRefused:
    """Return the refusal of a group that consumers have joined that are no processes of the app."""
    servers = ",".join(settings.bootstrap_servers)
    who = some(str(each) for each in found) or "of another kind, which the coordinator does not list"
    is_newer = any(each.protocol == NEWER_PROTOCOL for each in found)
    instead = (
        "assigns the partitions itself: processes of the app get no warm copies and do not know each other"
        if is_newer
        else "lets no process of the app join"
    )
    return GroupRefused(
        f"group {group_id} has a member that is no process of the app ({who}): until it leaves, the coordinator"
        f" {instead}",
        hint="stop that consumer, or give it another group.id: the group whose name is the app id is the app's own."
        f" `kafka-consumer-groups.sh --bootstrap-server {servers} --describe --group {group_id} --members` lists who is"
        " in it",
        members=[str(each) for each in found],
    )


async def _broker_config(admin: KafkaAdmin) -> dict[str, str]:
    try:
        return dict((await admin.facts()).broker_config)
    except SnapreplayError:
        return {}


async def _foreign(admin: KafkaAdmin, group_id: str, *, is_foreign: bool) -> list[ForeignMember]:
    try:
        return await admin.foreign_members(group_id, is_foreign=is_foreign)
    except SnapreplayError:
        return []


def _beyond_limits(settings: Settings, group_id: str, broker_config: dict[str, str]) -> GroupRefused:
    wanted_ms = settings.group.session_timeout_ms
    found = broker_limits.session_timeout(wanted_ms, broker_config)
    if found is not None:
        return GroupRefused(found.problem, hint=found.remedy)
    return GroupRefused(
        f"the coordinator of group {group_id} refuses group.session_timeout_ms={wanted_ms}: it is below its"
        f" {broker_limits.SESSION_MIN} or above its {broker_limits.SESSION_MAX}",
        hint=f"`--set group.session_timeout_ms={DEFAULT_SESSION_MS}` lies between Kafka's defaults of the two, 6000 and"
        " 1800000 (it outranks a settings file and the environment); or change them on every broker",
    )
