"""Saved files that somebody made: their checksums are right, what they hold is not."""

import json
import zipfile

import safetensors.torch

from evalign.store.archive import MANIFEST, STATE, TENSORS


def opened(path):
    """The JSON of a saved object, and its tensors by name."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(STATE)), safetensors.torch.load(archive.read(TENSORS))


def forge(path, state=None, tensors=None, **members):
    """Replace the JSON, the tensors or the bytes of members of a saved file."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in (MANIFEST, STATE, TENSORS)}
    if state is not None:
        parts[STATE] = json.dumps(state).encode()
    if tensors is not None:
        parts[TENSORS] = safetensors.torch.save(tensors)
    parts |= {name.replace("_", "."): data for name, data in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def put(path, where, value):
    """Change what lies at a dotted path in the JSON; `...` removes it, "+" stands for a state."""
    state, tensors = opened(path)
    *parents, last = where.replace("+", "state").split(".")
    place = state
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    forge(path, state, tensors)
