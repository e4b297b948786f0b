"""Saves what a result carries beside text: pictures, sounds, whole outputs."""

from __future__ import annotations

import os
from contextlib import suppress

from edged.cli.faults import cannot
from edged.client import Client
from edged.errors import NotFoundError, StoreError

_ELSEWHERE = "choose another place with --output"

_ENDINGS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "video/mp4": "mp4",
    "application/json": "json",
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
}


class Saver:
    """Files of one result; the directory is made when the first one comes.

    Attributes:
        faults: why what could not be saved was not, in words.
    """

    def __init__(self, client: Client, tool: str, directory: str | None) -> None:
        """A saver.

        Args:
            client: fetches media.
            tool: begins the names.
            directory: where to; None is a new one among the temporary files.
        """
        self.faults: list[str] = []
        self._client = client
        self._tool = tool
        self._directory = directory
        self._own = directory is None
        self._made = False
        self._saved: set[str] = set()

    def unsaved(self, uris: list[str]) -> list[str]:
        """Those that `medium` was not asked for yet."""
        return [uri for uri in uris if uri.startswith("media://") and uri not in self._saved]

    def text(self, uri: str) -> str:
        """The content of a text medium, which counts as saved.

        Raises:
            EdgedError: it is gone or cannot be had.
        """
        self._saved.add(uri)
        return self._client.medium(uri).data.decode("utf-8", "replace")

    def medium(self, uri: str) -> str:
        """Save a medium; returns its path (see `file`), or says that it is gone."""
        self._saved.add(uri)
        try:
            found = self._client.medium(uri)
        except NotFoundError as error:
            return f"[{uri}: {error}]"
        return self.file(found.data, found.mime_type, found.name)

    def file(self, data: bytes, mime_type: str, name: str) -> str:
        """Save bytes under a name that is not taken; returns the path, or empty text.

        What could not be written joins `faults`: the rest of the result is shown all the same.
        """
        try:
            return self._written(data, mime_type, name)
        except StoreError as error:
            self.faults.append(str(error))
            return ""

    def _written(self, data: bytes, mime_type: str, name: str) -> str:
        directory = self._ready()
        stem, ending = _named(name or self._tool, mime_type)
        number = 1
        while True:
            suffix = f"-{number}" if number > 1 else ""
            path = os.path.join(directory, f"{stem}{suffix}.{ending}")
            try:
                with open(path, "xb") as file:
                    file.write(data)
            except FileExistsError:
                number += 1
            except OSError as error:
                # Nobody wants half a file, or an empty directory of ours.
                with suppress(OSError):
                    os.unlink(path)
                    if self._own:
                        os.rmdir(directory)
                raise StoreError(cannot("write", path, error, _ELSEWHERE)) from None
            else:
                return path

    def _ready(self) -> str:
        if self._directory is None:
            among = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  a directory of our own in it
            self._directory = os.path.join(among, f"edged-{os.urandom(4).hex()}")
        if not self._made:
            try:
                if self._own:
                    os.mkdir(self._directory, 0o700)
                else:
                    os.makedirs(self._directory, exist_ok=True)
            except OSError as error:
                raise StoreError(cannot("write", self._directory, error, _ELSEWHERE)) from None
        self._made = True
        return self._directory


def _named(name: str, mime_type: str) -> tuple[str, str]:
    """A name of the daemon's as stem and ending that are safe in a directory."""
    stem, dot, ending = os.path.basename(name).rpartition(".")
    known = _ENDINGS.get(mime_type.partition(";")[0].strip(), "")
    if not dot or (known and ending != known):
        stem, ending = os.path.basename(name), known or "bin"
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in stem)
    safe_ending = "".join(c for c in ending if c.isascii() and c.isalnum())
    return clean.lstrip(".")[:80] or "file", safe_ending[:10] or "bin"
