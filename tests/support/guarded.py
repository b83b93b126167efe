"""A broker that asks who somebody is and what he may do: SASL, TLS with an authority of its own, ACLs."""

import argparse
import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import HOST, Node
from tests.support.deadlines import scaled
from tests.support.local_cluster import LocalCluster
from tests.support.steady import KEEPS_LEADERS
from tests.support.waiting import eventually

USER, PASSWORD = "ada", "lovelace"
ACL_FIELDS = (*("restype", "name", "resource_pattern_type", "principal", "host"), *("operation", "permission_type"))
_LOGIN = "org.apache.kafka.common.security"
_SAN = f"subjectAltName=IP:{HOST}"


@dataclass(frozen=True)
class Guarded:
    """Addresses of its listeners. On `open` everybody is a super user, on the others the authorizer decides.

    Attributes:
        sasl: SASL_PLAINTEXT with PLAIN and SCRAM-SHA-256, for `USER`.
        tls: SSL; a client needs a certificate of the authority in `folder`.
        tokens: SASL_PLAINTEXT with OAUTHBEARER; a JWT without a signature is enough (`token`).
        folder: ca.pem; client.pem and client.key; other.pem, an authority without trust.
    """

    cluster: LocalCluster
    open: str
    sasl: str
    tls: str
    tokens: str
    folder: Path
    admin: AdminClient  # on `open`

    def as_user(self, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.plain.username": USER,
            "sasl.plain.password": password,
        }

    def by_tokens(self, provider: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.tokens,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauth.token.provider": provider,
        }

    def by_certificate(self, **changed: str | None) -> dict[str, Any]:
        """The kafka settings of the client certificate; `changed` by name with _ for the dot, None leaves one out."""
        given: dict[str, str | None] = {
            "ssl.cafile": str(self.folder / "ca.pem"),
            "ssl.certfile": str(self.folder / "client.pem"),
            "ssl.keyfile": str(self.folder / "client.key"),
            **{name.replace("_", "."): value for name, value in changed.items()},
        }
        known = {name: value for name, value in given.items() if value is not None}
        return {"bootstrap.servers": self.tls, "security.protocol": "SSL", **known}

    def set_password(self, password: str) -> None:
        """Set the password of `USER`, for SCRAM; connections that are there already stay."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(scaled(20))

    def allow(self, kafka_acls: str) -> None:
        """Allow what the arguments of `kafka-acls.sh` say: --allow-principal, --operation, --topic, …; or --remove."""
        given = bindings(kafka_acls)
        for future in self.admin.create_acls(given).values():
            future.result(scaled(20))
        # The answer is the controller's. The broker, which decides, hears of it a moment later.
        eventually(lambda: all(map(self._knows, given)), kafka_acls)

    def revoke(self, kafka_acls: str) -> None:
        given = bindings(kafka_acls)
        for future in self.admin.delete_acls(list(map(_filter, given))).values():
            assert future.result(scaled(20)), f"no user was allowed {kafka_acls}"
        eventually(lambda: not any(map(self._knows, given)), kafka_acls)

    def _knows(self, given: AclBinding) -> bool:
        return bool(self.admin.describe_acls(_filter(given)).result(scaled(20)))


def token(seconds: float, user: str = USER) -> str:
    """A JWT without a signature, which ends after so many seconds."""
    # The broker rounds to milliseconds and refuses a token from the future: it may get one in the millisecond it is of.
    claims = {"sub": user, "iat": int(time.time()), "exp": time.time() + seconds}
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims))
    return ".".join(part.rstrip("=") for part in parts) + "."


def _filter(given: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(*(getattr(given, name) for name in ACL_FIELDS))


def bindings(kafka_acls: str) -> list[AclBinding]:
    """The arguments of a `kafka-acls.sh --add` command as what it would send."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--resource-pattern-type", default="literal")
    parser.add_argument("--cluster", action="append_const", const="kafka-cluster", default=[])
    for option in ("--operation", "--topic", "--group", "--transactional-id"):
        parser.add_argument(option, action="append", default=[])
    given, _ = parser.parse_known_args(kafka_acls.split())
    kinds = {
        ResourceType.TOPIC: given.topic,
        ResourceType.GROUP: given.group,
        ResourceType.TRANSACTIONAL_ID: given.transactional_id,
        ResourceType.BROKER: given.cluster,
    }
    pattern = ResourcePatternType[given.resource_pattern_type.upper()]
    # IdempotentWrite is IDEMPOTENT_WRITE.
    operations = [AclOperation[re.sub("(?<!^)(?=[A-Z])", "_", each).upper()] for each in given.operation]
    return [
        AclBinding(kind, name, pattern, given.allow_principal, "*", operation, AclPermissionType.ALLOW)
        for kind, names in kinds.items()
        for name in names
        for operation in operations
    ]


@contextmanager
def guarded_broker(folder: Path) -> Iterator[Guarded]:
    """One broker with three listeners; keys and certificates are made in `folder`."""
    _make_certificates(folder)
    plain, controller, *guarded = free_ports(5)
    node = Node(1, plain, controller)
    properties = _listeners(plain, controller, *guarded) | _tls(folder) | _WHO | KEEPS_LEADERS
    with (
        LocalCluster(1, nodes=[node], properties=properties) as cluster,
        AdminClient({"bootstrap.servers": f"{HOST}:{plain}"}) as admin,  # else it asks for a broker that has ended
    ):
        open_at, sasl_at, tls_at, tokens_at = (f"{HOST}:{port}" for port in (plain, *guarded))
        here = Guarded(cluster, open_at, sasl_at, tls_at, tokens_at, folder, admin)
        here.set_password(PASSWORD)
        yield here


def _listeners(plain: int, controller: int, sasl: int, tls: int, tokens: int) -> dict[str, str]:
    ports = {"PLAINTEXT": plain, "SASL": sasl, "TLS": tls, "TOKENS": tokens}
    public = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    return {
        "listeners": f"{public},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": public,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,TOKENS:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
    }


_WHO = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl.plain.sasl.jaas.config": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.tokens.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker";',
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
}


def _tls(folder: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": (folder / "broker.pem").read_text(),
        "ssl.keystore.key": (folder / "broker.key").read_text(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (folder / "ca.pem").read_text(),
        "listener.name.tls.ssl.client.auth": "required",
    }


def _make_certificates(folder: Path) -> None:
    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    new += " -keyout {0}.key -out {0}.pem -subj /CN={0}"
    signed = f"{new} -CA ca.pem -CAkey ca.key -addext basicConstraints=CA:FALSE -addext {_SAN}"
    for command in (new.format("ca"), new.format("other"), signed.format("broker"), signed.format("client")):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
