"""deliveries.py, with a real registry, a real HTTP service that fails half of the time, and twenty SIGKILLs."""

import importlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from examples import deliveries
from snapreplay.testing import RealHarness
from tests.support.apicurio import apicurio
from tests.support.deadlines import scaled
from tests.support.kafka import until_async

KILLS, ORDERS_A_KILL, PARTITIONS = 20, 12, 4
BEGIN_MS = (time.time_ns() // 1_000_000 // deliveries.HOUR_MS - 48) * deliveries.HOUR_MS
"""Younger than the retention of a topic, which deletes outputs of old records."""
COUNTRIES = ("NL", "DE", "US")
SCHEMA = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "customer", "type": "string"}, {"name": "note", "type": ["null", "string"], "default": null},
    {"name": "grams", "type": "int"}]}"""


def price(country: str, grams: int) -> int:
    return 500 * (1 + COUNTRIES.index(country)) + grams


class Prices(ThreadingHTTPServer):
    """A service of prices; by its dice half of the requests fail, but at most four of an order in a row: the pauses
    between attempts double."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.dice, self.lock = random.Random(39), threading.Lock()
        self.by_id: dict[str, set[int]] = defaultdict(set)
        self.requests: Counter[bool] = Counter()
        self.failures: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/prices"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that is killed leaves its connection."""


class _Asked(BaseHTTPRequestHandler):
    server: Prices

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        cents = price(query["country"][0], int(query["grams"][0]))
        with self.server.lock:
            call_id = self.headers["Idempotency-Key"]
            is_well = self.server.dice.random() < 0.5 or self.server.failures[call_id] == 4
            self.server.failures[call_id] = 0 if is_well else self.server.failures[call_id] + 1
            self.server.requests[is_well] += 1
            self.server.by_id[call_id].add(cents)
        self.send_response(200 if is_well else 503)
        self.end_headers()
        self.wfile.write(str(cents).encode() if is_well else b"try again")

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@contextmanager
def prices() -> Iterator[Prices]:
    with Prices() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, Prices, str]]:
    """The app as a module that knows the addresses, the service of prices, and the registry's URL."""
    with apicurio(tmp_path / "registry.log") as url, prices() as server, monkeypatch.context() as patched:
        patched.setenv("REGISTRY_URL", url)
        patched.setenv("PRICES_URL", server.url)
        yield importlib.reload(deliveries), server, url
    importlib.reload(deliveries)


@pytest.fixture
def avro(services: tuple[ModuleType, Prices, str]) -> Iterator[Callable[[str, Any], bytes]]:
    """Confluent's own serializer of a value for a topic, with a schema that is not the app's."""
    with SchemaRegistryClient({"url": services[2]}) as client:
        serializer = AvroSerializer(client, SCHEMA)
        yield lambda topic, value: serializer(value, SerializationContext(topic, MessageField.VALUE))


@pytest.mark.whole
@pytest.mark.timeout(1200)
async def test_outputs_and_state_are_those_of_a_fold_by_hand_over_twenty_kills(
    broker: Any,
    unique: Callable[[str], str],
    services: tuple[ModuleType, Prices, str],
    avro: Callable[[str, Any], bytes],
) -> None:
    """Each order of a known customer has one delivery with the right name and price, and one place in its hour."""
    module, server, _ = services
    dice, prefix = random.Random(17), f"{unique('avro')}-"
    people = {f"c{n}": module.Customer(f"name {n}", COUNTRIES[n % 3]) for n in range(30)}
    expected: list[list[Any]] = []
    hours: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    harness = RealHarness(module.app, broker, partitions=PARTITIONS, prefix=prefix, deadline_s=scaled(90))

    async def order(number: int, customer: str, at_ms: int) -> None:
        grams = dice.randrange(1, 5_000)
        value = avro(f"{prefix}orders", {"customer": customer, "note": None, "grams": grams})
        await harness.feed_raw(module.orders, b"o%d" % number, value, timestamp_ms=at_ms)
        if customer in people:
            cents = price(people[customer].country, grams)
            expected.append([f"o{number}", people[customer].name, cents])
            hour = hours[customer, at_ms // module.HOUR_MS * module.HOUR_MS]
            hour[0], hour[1] = hour[0] + 1, hour[1] + cents

    async def delivered(count: int) -> list[Any]:
        found = await until_async(lambda: harness.outputs(module.deliveries), lambda sent: len(sent) >= count)
        return [each.value for each in found]

    async with harness:
        for customer, person in people.items():
            await harness.feed(module.customers, key=customer, value=person, timestamp_ms=BEGIN_MS - 1000)
        await harness.feed(module.customers, key="c999", value=module.Customer("left", "NL"), timestamp_ms=BEGIN_MS - 2)
        await harness.feed(module.customers, key="c999", value=None, timestamp_ms=BEGIN_MS - 1)
        await harness.caught_up()
        for kill in range(KILLS):
            for number in range(kill * ORDERS_A_KILL, (kill + 1) * ORDERS_A_KILL):
                customer = "c999" if number % 11 == 0 else f"c{dice.randrange(30)}"
                await order(number, customer, BEGIN_MS + dice.randrange(3 * module.HOUR_MS))
            await delivered(len(expected) - dice.randrange(ORDERS_A_KILL))
            await harness.kill()
            await harness.restart()
        await delivered(len(expected))
        await harness.caught_up()
        states: list[Any] = [await harness.view(number) for number in range(PARTITIONS)]
        kept = {key: [costs.orders, costs.cents] for state in states for key, costs in state.hours.items()}
        assert kept == hours
        assert {key: value for state in states for key, value in state.customers.items()} == people
        closed = {(*key, *sums) for key, sums in hours.items()}
        for number, customer in enumerate(people):  # at each partition's next day, the hours before it are over
            await order(10_000 + number, customer, BEGIN_MS + 30 * module.HOUR_MS)
        assert sorted(await delivered(len(expected))) == sorted(expected)
        await harness.caught_up()
        sent = [(each.key, *each.value) for each in await harness.outputs(module.hourly_costs)]
        assert sorted(sent) == sorted(closed)
    assert len(server.by_id) == len(expected)
    assert all(len(asked) == 1 for asked in server.by_id.values())
    assert server.requests[True] >= len(expected)
    assert server.requests[False] > len(expected) // 3
