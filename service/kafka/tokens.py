"""The tokens of SASL OAUTHBEARER, from the user's own provider: an object with `token()`, and perhaps `extensions()`,
both of them functions or coroutine functions.

Every client asks when it connects, so a token is renewed without a restart. The provider is called in a thread with an
event loop of its own: one that blocks delays no heartbeat, and it is never called from two loops.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from snapreplay.app.load import load_module
from snapreplay.errors import UsageError, described
from snapreplay.service.config.kafka_properties import TOKEN_PROVIDER, is_provider, provider_shown
from snapreplay.service.config.settings import Settings

TOKEN_SECONDS = 5.0
"""The time that a provider has for one token."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_KNOWN: dict[str | int, KafkaTokens] = {}
"""By the name of the provider, or by the id of the object."""
_LOCK = threading.Lock()


class TokenFailure(KafkaError):
    """There is no token. The text names the provider and the cause, and holds nothing that the provider returned."""


class KafkaTokens(AbstractTokenProvider):
    """Asks a provider for the clients."""

    def __init__(self, provider: Any, name: str) -> None:
        self.name = name
        self._provider = provider
        self._extensions: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def token(self) -> str:
        """Return a new token.

        Raises:
            TokenFailure: the provider raised an error, took too long, or returned something else.
        """
        asked, deadline = self._begin(), asyncio.timeout(TOKEN_SECONDS)
        try:
            async with deadline:
                token, extensions = await asyncio.wrap_future(asked)
        except Exception as error:
            if deadline.expired():
                raise self._failure(f"gave no token within {TOKEN_SECONDS:g} s") from None
            raise self._failure(f"raised {described(error)}") from error
        if not isinstance(token, str):
            raise self._failure(f"returned {type(token).__name__} as its token, not str")
        if not _TOKEN.fullmatch(token):
            wrong = "a str with characters that a bearer token cannot have, such as a newline"
            raise self._failure(f"returned {wrong if token else 'an empty str'}")
        if not isinstance(extensions, Mapping):
            raise self._failure(f"returned {type(extensions).__name__} as its extensions, not a dict")
        self._extensions = {str(key): str(value) for key, value in extensions.items()}
        return token

    def extensions(self) -> dict[str, str]:
        """Return those that came with the last token."""
        return self._extensions

    def _begin(self) -> Future[tuple[Any, Any]]:
        with _LOCK:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="snapreplay-tokens", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(self._ask(), self._loop)

    async def _ask(self) -> tuple[Any, Any]:
        extensions = getattr(self._provider, "extensions", None)
        token = await _result(self._provider.token())
        return token, await _result(extensions()) if callable(extensions) else {}

    def _failure(self, why: str) -> TokenFailure:
        return TokenFailure(f"the token provider {self.name} {why}")


async def _result(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given


def tokens_of(settings: Settings) -> KafkaTokens | None:
    """Return what asks the provider of these settings, the same one at each call; None if they have none.

    Raises:
        UsageError: `module:factory` cannot be imported, or makes no provider.
    """
    given: Any = settings.kafka.get(TOKEN_PROVIDER)
    if given is None:
        return None
    key = given if isinstance(given, str) else id(given)
    with _LOCK:
        if key not in _KNOWN:  # a Tokens keeps its object, so no other one gets the same id
            _KNOWN[key] = KafkaTokens(_made(given) if isinstance(given, str) else given, provider_shown(given))
        return _KNOWN[key]


def _made(name: str) -> Any:
    """Import a provider, or what makes one: a function or a class."""
    place, _, attribute = name.rpartition(":")
    module = load_module(place, "token provider's")
    found = getattr(module, attribute, None)
    if found is None:
        raise _useless(name, f"module {module.__name__} has no attribute {attribute!r}")
    if is_provider(found):
        return found
    if not callable(found):
        raise _useless(name, f"a {type(found).__name__} is not a provider, and does not return one")
    try:
        made = found()
    except Exception as error:
        raise _useless(name, f"it raised {described(error)}") from error
    if not is_provider(made):
        raise _useless(name, f"it returned {type(made).__name__}, which has no method token()")
    return made


def _useless(name: str, why: str) -> UsageError:
    return UsageError(
        f"kafka.{TOKEN_PROVIDER}={name}: {why}",
        hint="name an object with a method token() that returns the token, or a function without arguments that"
        " returns such an object",
    )
