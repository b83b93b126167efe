"""A map that keeps its keys in order, through all that happens to a batch."""

from itertools import islice
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from snapreplay.state import sorted_keys
from tests.snapreplay.state.test_mapstore import KEYS, Machine


class OrderedMachine(Machine):
    """The same with keys that are kept in order, in small blocks; ranges are those of a sorted dict."""

    ordered = True

    def __init__(self) -> None:
        self.small = patch.object(sorted_keys, "BLOCK_KEYS", 4)
        self.small.start()
        super().__init__()

    def teardown(self) -> None:
        self.small.stop()

    @rule(
        start=KEYS | st.none(),
        end=KEYS | st.none(),
        prefix=st.sampled_from([None, "k", "k1", "x"]),
        reverse=st.booleans(),
        puts=st.lists(KEYS, max_size=2),
        deletes=st.lists(KEYS, max_size=2),
    )
    def read_a_range(
        self,
        start: str | None,
        end: str | None,
        prefix: str | None,
        reverse: bool,
        puts: list[str],
        deletes: list[str],
    ) -> None:
        """After its first entry others come and go: it has those that were there and are not deleted."""
        found = self.state.range(prefix=prefix, start=start, end=end, reverse=reverse)
        wanted = sorted(
            (
                key
                for key in self.live
                if key.startswith(prefix or "")
                and (start is None or start <= key)
                and (end is None or key < end)
            ),
            reverse=reverse,
        )
        read = [*islice(found, 1)]
        for key in puts:
            self.put(key, {"n": 9})
        for key in deletes:
            self.delete(key)
        read += found
        assert [key for key, _ in read[1:]] == [k for k in wanted[1:] if k in self.live]
        assert [key for key, _ in read[:1]] == wanted[:1]
        assert all(value == self.live[key] for key, value in read[1:])

    @rule()
    def forget_the_order(self) -> None:
        """As a restore does; it is found again at the first use."""
        self.store._index.items = None

    @invariant()
    def the_order_has_no_other_keys(self) -> None:
        """Those that were rolled back would only be skipped, and stay for ever."""
        index = self.store.items
        assert list(index.between(index.start, index.end)) == sorted(self.live)

    @rule(start=KEYS | st.none(), end=KEYS | st.none(), reverse=st.booleans())
    def read_a_committed_range(self, start: str | None, end: str | None, reverse: bool) -> None:
        """Whatever the batch in progress, and the one that waits, add and delete."""
        found = self.store.committed_view().range(start=start, end=end, reverse=reverse)
        assert list(found) == [
            (key, self.committed[key])
            for key in sorted(self.committed, reverse=reverse)
            if (start is None or start <= key) and (end is None or key < end)
        ]

    @invariant()
    def the_committed_view_is_in_order(self) -> None:
        assert list(self.store.committed_view().range()) == sorted(self.committed.items())

    @invariant()
    def the_replica_is_in_order(self) -> None:
        assert list(self.replicated) == sorted(self.committed)


TestOrdered = OrderedMachine.TestCase
TestOrdered.settings = settings(max_examples=60, stateful_step_count=40)
