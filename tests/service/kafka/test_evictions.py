"""Notices a second process of our name."""

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.membership import Evictions


@pytest.mark.parametrize("instance_id", ["one", ""])
def test_another_process_of_our_name_is_noticed_once(instance_id):
    """A member without a name is thrown out, too, but no other member can have its name."""
    evictions = Evictions(Settings(instance_id=instance_id))
    noticed = [evictions.seen(f"member-{number}") for number in (0, 0, 1, 2, 3, 4)]
    assert noticed == [False, False, False, False, bool(instance_id), False]
    assert evictions.suspects_duplicate is bool(instance_id)
    evictions.forget()
    assert not evictions.suspects_duplicate
