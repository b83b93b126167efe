"""The settings of an OpenID provider, and what is wrong with them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit

from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings


class OidcProvider(NamedTuple):
    """The settings `http.oidc_…`; without an issuer there is no provider.

    Attributes:
        issuer: exactly as tokens name it (`iss`); its keys are found below it (OpenID Connect Discovery).
        audience: as tokens for this service name it (`aud`).
        role_claim: the claim with the roles, a dot between the names of nested ones.
    """

    issuer: str = ""
    audience: str = ""
    role_claim: str = ""

    @classmethod
    def of(cls, settings: HttpSettings) -> OidcProvider:
        return cls(settings.oidc_issuer, settings.oidc_audience, settings.oidc_role_claim)

    def check(self, token_file: str) -> None:
        """Check the settings.

        Raises:
            UsageError: they let in whom they should not, or do not work.
        """
        if not self.issuer:
            return
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in ("localhost", "127.0.0.1")):
            raise UsageError(
                f"http.oidc_issuer={self.issuer} is no https:// URL: whoever answers in its place could log in",
                hint="set the issuer as its tokens name it (`iss`)",
            )
        if not self.audience:
            raise UsageError(
                "http.oidc_audience is empty: a token that the provider made for any other service would be good here",
                hint="set it to what tokens for this service have as `aud`",
            )
        if not token_file:
            raise UsageError(
                "http.oidc_issuer is set, and http.token_file is not: the processes of the app ask each other with it",
                hint="make one for all of them: `openssl rand -hex 32 > token` and `--set http.token_file=token`",
            )
        if find_spec("jwt") is None:
            raise UsageError("http.oidc_issuer needs PyJWT", hint="`pip install 'snapreplay[oidc]'`")
