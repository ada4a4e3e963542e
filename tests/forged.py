"""Saved files that somebody made: their checksums are right, what they hold is not."""

import io
import json
import zipfile

import numpy as np

from evalign.core import stairs
from evalign.store.archive import STATE, TENSORS


def opened(path):
    """The JSON of a saved object, and its arrays and tensors by their places in it."""
    members = members_of(path)
    state = json.loads(members[STATE])
    values = {place: np.load(io.BytesIO(members[name])) for place, name in arrays_in(state)}
    if TENSORS in members:
        values |= stairs.tensors_of_bytes(members[TENSORS], "A forged file")
    return state, values


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def arrays_in(tree, place=""):
    """The place of each array in a tree, and the name of its member."""
    if isinstance(tree, list):
        tree = dict(enumerate(tree))
    if not isinstance(tree, dict):
        return
    if "$array" in tree:
        yield place, tree["$array"]
    for name, item in tree.items():
        yield from arrays_in(item, f"{place}/{name}")


def npy(array):
    """An array as an .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def forge(path, state=None, values=None, **members):
    """Replace the JSON, all arrays and tensors, or the bytes of members of a saved file."""
    parts = members_of(path)
    if state is not None:
        parts[STATE] = json.dumps(state).encode()
    if values is not None:
        tensors = dict(values)
        for place, name in arrays_in(json.loads(parts[STATE])):
            array = tensors.pop(place, None)
            parts[name] = b"" if array is None else npy(np.asarray(array))
        if tensors:
            parts[TENSORS] = stairs.bytes_of_tensors(tensors)
    parts |= {name.replace("_", "."): data for name, data in members.items()}
    write_members(path, parts)


def write_members(path, parts, *method):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data, *method)


def put(path, where, value):
    """Change what lies at a dotted path in the JSON; `...` removes it, "+" stands for a state."""
    state, _ = opened(path)
    *parents, last = where.replace("+", "state").split(".")
    place = state
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    forge(path, state)
