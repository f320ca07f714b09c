"""A client of the ad server's API, by an access key: requests over HTTP, and refusals raised as they were.

    with open_access("https://ads.example", key_file=Path("bean.key")) as api:
        api.read(lambda told: told["role"], "GET", "/ads/whoami")

Where nothing else is said, the environment says where the ad server is (TACIT_ADS_URL) and the key
(TACIT_ADS_KEY). Nothing that another machine says reaches a terminal but as one short line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx

from tacit.deliver.campaigns.access import key_id_of
from tacit.deliver.campaigns.store import CampaignVerdict
from tacit.display import brief
from tacit.errors import BadInput, CampaignRefused
from tacit.expect import RECORD_FAULTS
from tacit.files import OTHERS_MODE, parse_json
from tacit.services.http_clients import HttpAnswer, LinkFailed, fetch, open_client
from tacit.services.settings import check_url

KEY_VARIABLE, URL_VARIABLE = "TACIT_ADS_KEY", "TACIT_ADS_URL"
TIMEOUT_SECONDS = 60
REFUSALS = {f"tacit:campaign-{each}": each for each in CampaignVerdict}
MOST_SAID = 400  # characters of an answer that are shown
Told = TypeVar("Told")


class AccessClient:
    """Asks by an access key. What the ad server refuses is a CampaignRefused; what fails on the way is a
    LinkFailed, an OSError: it is then not known whether the ad server acted."""

    def __init__(self, client: httpx.Client, url: str, key: str) -> None:
        self._client, self._url, self._key = client, check_url("--url", url), key

    def __repr__(self) -> str:
        return brief(self, url=self._url)

    def read(self, read: Callable[[Any], Told], method: str, path: str, body: Any = None) -> Told:
        """What `read` makes of the answer's JSON."""
        return self.parse(read, self.ask(method, path, body))

    def pages(self, path: str, name: str, read: Callable[[Any], Told], **query: Any) -> Iterator[Told]:
        """All rows of a list that comes in pages; what is None in the query is not said."""
        following = True
        while following:
            said = {key: value for key, value in query.items() if value is not None}
            where = f"{path}?{urlencode({**said, 'most': 1_000})}"
            found, after = self.read(
                lambda told: ([read(each) for each in told[name]], told["next"]), "GET", where
            )
            yield from found
            query["after"], following = after, after is not None

    def parse(self, read: Callable[[Any], Told], answer: HttpAnswer) -> Told:
        try:
            return read(parse_json(answer.body))
        except RECORD_FAULTS:
            raise LinkFailed(f"expected an ad server at {self._url}, got another answer") from None

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        headers = {"authorization": f"Bearer {self._key}", "accept": "application/json"}
        request = self._client.build_request(
            method, self._url + path, headers=headers, **({} if body is None else {"json": body})
        )
        try:
            answer = fetch(self._client, request)
        except LinkFailed as problem:
            raise LinkFailed(f"expected an answer from {self._url}, got none: {problem}") from None
        if answer.status < 300:
            return answer
        try:
            told = parse_json(answer.body)
            verdict, detail = REFUSALS.get(told["type"]), _line(told.get("detail", ""))
            title = _line(told["title"])
        except RECORD_FAULTS:
            verdict, detail, title = None, "", f"status {answer.status}"
        if verdict is not None:
            raise CampaignRefused(verdict, detail)
        again = f", in {_line(answer.headers['retry-after'])} s" if "retry-after" in answer.headers else ""
        raise LinkFailed(f"the ad server at {self._url} refused: {title}{again}")


def _line(text: object) -> str:
    """Something that another machine said, as one short line that moves no terminal."""
    return "".join(each if each.isprintable() else " " for each in str(text))[:MOST_SAID]


def read_key(key_file: Path | None) -> str:
    """The access key of a file that only its owner may read, or of the environment."""
    if key_file is None:
        spelled, where = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
        if not spelled:
            raise BadInput(f"expected --key-file FILE, or an access key in {KEY_VARIABLE}, got neither")
    else:
        where = f"--key-file: {key_file}"
        try:
            mode, spelled = stat.S_IMODE(key_file.stat().st_mode), key_file.read_text()
        except (OSError, UnicodeDecodeError):
            raise BadInput(f"{where}: expected a file with an access key, got none that can be read") from None
        if mode & OTHERS_MODE:
            raise BadInput(
                f"{where}: expected a file that only its owner may read (chmod 600), got mode {mode:o}"
            )
    if key_id_of(spelled.strip()) is None:  # what it is instead must not be repeated
        raise BadInput(f"{where}: expected an access key, tacit_ID_SECRET, got another text")
    return spelled.strip()


def named_url(url: str | None) -> str | None:
    """Where the ad server is: as given, or as the environment says."""
    return url or os.environ.get(URL_VARIABLE) or None


@contextmanager
def open_access(
    url: str | None, *, key_file: Path | None = None, trust: Path | None = None
) -> Iterator[AccessClient]:
    named = named_url(url)
    if named is None:
        raise BadInput(f"expected --url URL, or an address in {URL_VARIABLE}, or --settings FILE, got none")
    key = read_key(key_file)
    with open_client(trust, TIMEOUT_SECONDS) as client:
        yield AccessClient(client, named, key)
