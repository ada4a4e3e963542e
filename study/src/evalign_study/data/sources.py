"""Where the files of a data set are: a local folder, the download cache, the public source."""

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from evalign_study.data.cards import Card
from evalign_study.refusals import installing

FOLDER = "EVALIGN_DATA"


class DataError(ValueError):
    """The error for a data set that is absent or damaged; its text says how to get the data."""


class Location(NamedTuple):
    """The place of a data set: "local", "cache" or "absent"; its files there, with checksums."""

    where: str
    files: dict[Path, str]


def locate(card: Card) -> Location:
    """Look for the files, without opening or fetching one."""
    folder, cache = _local_folder(), _cache_folder()
    if folder is not None:
        files = {folder / path: value for path, value in card.files.items()}
        if all(path.is_file() for path in files):
            return Location("local", files)
    if cache is not None and card.public:
        files = {cache / _cached(url): value for url, value in card.public.items()}
        files = {path: value or _recorded(path) for path, value in files.items()}
        if all(path.is_file() for path in files):
            return Location("cache", files)
    return Location("absent", {})


def damaged(found: Location) -> list[Path]:
    """List the files whose checksum differs from the known one."""
    return [path for path, value in found.files.items() if value and checksum(path, value) != value]


def fetch(card: Card) -> Location:
    """Find the files, or download them from the public source, and check them."""
    found = locate(card)
    if found.where == "local":
        for path in damaged(found):
            other = f", or unset {FOLDER} to fetch it" if card.public else ""
            cure = f"{found.files[path]} is expected. Copy it again{other}."
            raise DataError(f"{path} is damaged: it has another checksum than {card.name}. {cure}")
        return found
    if not card.public:
        cure = f"Put {_into(card)}; it was made from {card.home}."
        raise DataError(f"{card.name} is not in {_looked()}, and cannot be downloaded. {cure}")
    return Location("cache", dict(_download(card, url) for url in card.public))


def checksum(path: Path, like: str) -> str:
    """Compute the checksum of a file, by the algorithm of a given checksum."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _download(card: Card, url: str) -> tuple[Path, str]:
    """Download into the cache, unless an intact file is there; return the file and its checksum.

    Pooch writes to another file and renames it, so that the cache never holds a part of one. Where
    the card has no checksum, pooch prints that of the file that came; it is recorded beside the
    file, and expected from then on.
    """
    try:
        import pooch
        from requests import RequestException
    except ModuleNotFoundError as error:
        cure = f"{installing('study')}; or put {_into(card)}."
        raise DataError(f"{card.name} is not in {_looked()}; pooch fetches it. {cure}") from error
    path = pooch.os_cache("evalign") / _cached(url)
    expected = card.public[url] or _recorded(path)
    try:
        pooch.retrieve(url, expected or None, fname=path.name, path=path.parent)
    except ValueError as error:
        cure = "Try again; if it stays so, the publisher has changed the file."
        if not card.public[url]:
            cure += f" To take the new one, delete {_record(path)}, which holds the old checksum."
        raise DataError(f"{url} did not arrive whole: {expected} is expected. {cure}") from error
    except RequestException as error:
        cure = f"Connect to the network, or put {_into(card)}."
        why = f"{url} cannot be fetched ({type(error).__name__})"
        raise DataError(f"{card.name} is not in {_looked()}, and {why}. {cure}") from error
    if not expected:
        expected = checksum(path, "sha256")
        _record(path).write_text(f"{expected}\n", encoding="utf-8")
    return path, expected


def _record(path: Path) -> Path:
    """The file that holds the checksum of a download whose publisher gives none."""
    return path.with_name(path.name + ".sha256")


def _recorded(path: Path) -> str:
    """The checksum of that download, or "" before there is one."""
    try:
        text = _record(path).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
    if not re.fullmatch("sha256:[0-9a-f]{64}", text):
        cure = "Delete it together with the file beside it, which is then fetched again."
        raise DataError(f"{_record(path)} is damaged: it holds no checksum. {cure}")
    return text


def _local_folder() -> Path | None:
    given = os.environ.get(FOLDER)
    if given and not Path(given).is_dir():
        raise DataError(f"{FOLDER} must name a folder with data sets. Got {given!r}.")
    return Path(given) if given else None


def _cache_folder() -> Path | None:
    try:
        import pooch
    except ModuleNotFoundError:  # without pooch nothing can have been downloaded
        return None
    return pooch.os_cache("evalign")


def _cached(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}"


def _looked() -> str:
    given = os.environ.get(FOLDER)
    return f"{FOLDER} ({given})" if given else f"a folder named in {FOLDER} (it is not set)"


def _into(card: Card) -> str:
    """The files, and where they belong."""
    folder = os.environ.get(FOLDER) or f"a folder, and set {FOLDER} to its path"
    return f"{' and '.join(card.files)} into {folder}"
