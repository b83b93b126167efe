"""The page for people, `/`, and the files that it needs, read once and served from memory.

The path of a file has the digest of all files, so a browser keeps them for ever, and an upgrade shows the new page.
Nothing here asks the service: the page appears while the service is frozen, and says so itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = "/static/"
HEADERS = {
    # Everything comes from here, and no other site may frame the buttons.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MEDIA = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_PLACEHOLDER = b"static/-/"
"""What the page has in the place of the folder with the digest. Relative, so a proxy may serve it below a path."""


def owns(path: str) -> bool:
    """Say whether this path is part of the page, and not of the API."""
    return path == "/" or path.startswith(FOLDER)


def install(app: Starlette) -> None:
    site = Site.read()
    app.add_route("/", site.page, include_in_schema=False)
    app.add_route(FOLDER + "{digest}/{name:path}", site.file, include_in_schema=False)


class Site(NamedTuple):
    """All files of the page by their name, and their digest."""

    files: dict[str, bytes]
    digest: str

    @classmethod
    def read(cls) -> Site:
        found = dict(sorted(_read(files(__package__) / "static")))
        digest = sha256()
        for name, content in found.items():
            digest.update(f"{name} {len(content)} ".encode() + content)
        return cls(found, digest.hexdigest()[:16])

    async def page(self, request: Request) -> Response:
        """Answer with the page, which is asked for again each time, and sent again after a change only."""
        tag = f'"{self.digest}"'
        headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        content = self.files["page.html"].replace(_PLACEHOLDER, f"static/{self.digest}/".encode())
        return Response(content, headers=headers, media_type=_MEDIA["html"])

    async def file(self, request: Request) -> Response:
        """Answer with a file. That of another version is not there: its page is loaded again."""
        name = request.path_params["name"]
        content = self.files.get(name)
        if content is None or request.path_params["digest"] != self.digest:
            raise HTTPException(404, "no such file of the page in this version: load the page again")
        headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers, media_type=_MEDIA[name.rpartition(".")[2]])


def _read(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each.read_bytes()
