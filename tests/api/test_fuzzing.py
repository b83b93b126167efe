"""Requests that the description of the API allows, and such that it does not: answers are as it says."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import NO_FEEDBACK
from schemathesis.generation.overrides import Override

from snapreplay.api.app import create_app
from snapreplay.api.credentials import NO_TOKENS, HttpTokens, authorization
from tests.api.test_app import DOCUMENTED, OPERATIONS
from tests.support.fake_control import NOW, FakeControl, Local

REFUSALS = ["400", "401", "403", "404", "405", "409", "413", "415", "422"]
TOKEN = "first-token-0123456789"
EXPECTED: dict[str, list[Any]] = {
    # 503 is what a probe says when a partition is not live: the only 5xx that is no defect here.
    "/readyz": [not_a_server_error]
}


class Asked(NamedTuple):
    """An app as its own description says that it is asked, with a login if it demands one."""

    schema: Any
    headers: Mapping[str, str]

    def operation(self, method: str, path: str) -> Any:
        return self.schema[path][method]

    def ask(self, case: Case[Any]) -> None:
        """Ask, and judge the answer by all checks."""
        is_wrong = case.meta is not None and case.meta.is_negative_at(ParameterLocation.HEADER)
        # A login may be what the case leaves out.
        headers = {} if is_wrong else dict(self.headers)
        case.call_and_validate(headers=headers, excluded_checks=EXPECTED.get(case.operation.path, []))


@pytest.fixture(scope="module")
def apps(tmp_path_factory):
    """One app without tokens, and one with them."""
    file = tmp_path_factory.mktemp("tokens") / "token"
    file.write_text(TOKEN)

    def asked(tokens: HttpTokens, headers: Mapping[str, str]) -> Asked:
        source = Local(FakeControl())
        app = create_app(source, now=lambda: NOW, tokens=tokens)
        schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=dict(headers))
        schema.config.checks.negative_data_rejection.expected_statuses = REFUSALS
        return Asked(schema, headers)

    return {"open": asked(NO_TOKENS, {}), "guarded": asked(HttpTokens(str(file)), authorization(TOKEN))}


def modes(method: str, path: str) -> list[GenerationMode]:
    """Name the kinds of data that a request may have: nothing wrong where it takes nothing."""
    takes = DOCUMENTED[path][method.lower()]
    return [*GenerationMode] if takes.get("parameters") or "requestBody" in takes else [GenerationMode.POSITIVE]


CASES = [pytest.param(*each, mode, id=" ".join([*each, mode])) for each in OPERATIONS for mode in modes(*each)]


@pytest.mark.whole
@pytest.mark.parametrize(("name", "number"), [("open", 2), ("guarded", 6)])
@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_answers_are_as_documented(apps, method, path, mode, name, number):
    """No input gives a 500, an undocumented status, media type or shape; what is wrong is refused, what is right is
    not, and nothing without the login that the description demands."""
    app = apps[name]

    @seed(number)
    @settings(max_examples=20, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=app.operation(method, path).as_strategy(generation_mode=mode))
    def ask(case):
        app.ask(case)

    ask()


@pytest.mark.parametrize("name", ["open", pytest.param("guarded", marks=pytest.mark.whole)])
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=map(" ".join, OPERATIONS))
def test_each_bound_and_each_form_of_the_description_is_judged(apps, method, path, name):
    """Each parameter at its bounds and beyond, each example, each other method: what chance may leave out."""
    app = apps[name]
    operation = app.operation(method, path)
    generator = CoverageGenerator(
        operation=operation,
        generation_modes=[*GenerationMode],
        generation_config=app.schema.config.generation_for(operation=operation, phase="coverage"),
        auth_storage=None,
        override=Override(),
        feedback=NO_FEEDBACK,
    )
    cases = [*generator]
    assert cases
    for case in cases:
        app.ask(case)
