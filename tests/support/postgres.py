"""A real Postgres on a free port of 127.0.0.1, which can be stopped and started."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snapreplay.devbroker.free_ports import free_ports
from tests.support.deadlines import scaled


class Postgres:
    """The server, stopped. `url` is for clients."""

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        (self._port,) = free_ports(1)
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self._folder, self._programs, self._user = folder, programs, user
        self._run("initdb", "-U", "postgres", "-A", "trust", "--no-sync")

    def start(self) -> None:
        options = f"-F -p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        self._run("pg_ctl", "start", "-w", "-t", str(int(scaled(60))), "-l", str(self._folder / "log"), "-o", options)

    def stop(self) -> None:
        """Let it crash, if it runs: an error of a second stop would hide that of the test."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-m", "immediate")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._folder / "data"), *arguments]
        subprocess.run(
            command, cwd=self._folder, user=self._user, check=True, stdout=subprocess.DEVNULL, timeout=scaled(90)
        )


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running one. Postgres refuses to run as root: then it runs as the user whom its package has made."""
    found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    if found is None:
        pytest.skip("there is no Postgres: `apt-get install postgresql`")
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        try:
            pwd.getpwnam(user)
        except KeyError:
            pytest.skip(f"Postgres does not run as root, and there is no user {user}: `apt-get install postgresql`")
    with tempfile.TemporaryDirectory(prefix="snapreplay-postgres-") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        server = Postgres(folder, Path(found).resolve().parent, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
