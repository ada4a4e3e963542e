"""The settings of a loss, a metric or a network, as plain values that can be compared.

A run may continue only with the settings it began with. The repr of a module is not enough, because
most modules do not show all their settings, so attributes are read. The state of a module, which is
what its state dict holds, is left out: a checkpoint restores it.
"""

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

Plain = None | bool | int | float | str | list["Plain"]

SMALL = 64  # numbers; a larger tensor is known by a checksum
MODULE = vars(nn.Module()).keys()  # what every module has
DTYPES = torch.dtype | torch.device


def configuration(name: str, thing: object) -> dict[str, Plain]:
    """Settings by dotted name: the type of every part, its attributes, its buffers of settings.

    Private attributes, whose names begin with an underscore, are left out. A function is described
    by its code, its defaults and the variables that it closes over. Any other object that is not a
    module or a metric is described by its type alone, and so are torch's functions and objects.

    Examples:
        >>> found = configuration("network", nn.Sequential(nn.Flatten(), nn.Dropout(0.2)))
        >>> found["network.1"], found["network.1.p"]
        ('torch.nn.modules.dropout.Dropout', 0.2)
    """
    return dict(_settings(name, thing, ()))


def _settings(name: str, thing: Any, inside: tuple[int, ...]) -> Iterator[tuple[str, Plain]]:
    """Pairs of name and value; `inside` are the ids of what is being described further out."""
    if id(thing) in inside:  # it refers to itself
        return
    inside = (*inside, id(thing))
    parts: dict[str, Any] = {}
    match thing:
        case nn.Module():
            for path, module in thing.named_modules():
                own = f"{name}.{path}" if path else name
                yield own, _name(type(module))
                for key, value in _of_module(module).items():
                    yield from _settings(f"{own}.{key}", value, inside)
            return
        case functools.partial():
            parts = {"func": thing.func, "args": thing.args, **thing.keywords}
        case MethodType():
            parts = {"func": thing.__func__, "self": thing.__self__}
        case FunctionType() if not _of_torch(thing):
            parts = _of_function(thing)
        case dict():
            parts = {_plain_text(key): value for key, value in thing.items()}
        case type() | FunctionType() | BuiltinFunctionType():
            pass
        case list() | tuple() if not all(map(_is_plain, thing)):
            parts = {str(i): value for i, value in enumerate(thing)}
        case _ if _is_plain(thing):
            yield name, _plain(thing)
            return
        case _ if not _of_torch(type(thing)) and (
            callable(thing) or dataclasses.is_dataclass(thing)
        ):
            parts = _public(getattr(thing, "__dict__", {}))
            if dataclasses.is_dataclass(thing):  # its fields may be slots
                parts |= {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
    known_by_name = isinstance(thing, type | FunctionType | BuiltinFunctionType)
    yield name, _name(thing if known_by_name else type(thing))
    for key, value in parts.items():
        yield from _settings(f"{name}.{key}", value, inside)


def _of_module(module: nn.Module) -> dict[str, Any]:
    """Attributes, and buffers that are settings, as the weights that torch's losses save are."""
    buffers = {
        key: buffer
        for key, buffer in module._buffers.items()
        if key in module._non_persistent_buffers_set
        or (isinstance(module, _Loss) and key in ("weight", "pos_weight"))
    }
    return _public({k: v for k, v in vars(module).items() if k not in MODULE}) | buffers


def _of_function(function: FunctionType) -> dict[str, Any]:
    """Code, defaults, closed-over variables, and attributes such as `greater_is_better`."""
    given = inspect.signature(function, follow_wrapped=False).parameters.values()
    defaults = {p.name: p.default for p in given if p.default is not p.empty}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed_over = {key: _contents(cell) for key, cell in cells}
    return {"code": _code(function.__code__)} | defaults | closed_over | _public(vars(function))


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _code(code: CodeType) -> str:
    """A checksum of what is computed: without line numbers, addresses or the order of sets."""
    constants = [_code(c) if isinstance(c, CodeType) else _plain(c) for c in code.co_consts]
    return _checksum(repr([code.co_code.hex(), code.co_names, code.co_varnames, constants]))


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufcUS"  # numbers and strings
    known = bool | int | float | complex | str | bytes | range | slice | np.generic | Enum
    return value is None or value is ... or isinstance(value, known | Tensor | DTYPES)


def _plain(value: Any) -> Plain:
    """The value as JSON can hold it, so that it equals what comes back from a checkpoint."""
    match value:
        case Tensor():
            return _numbers(value)
        case np.ndarray() if value.dtype.kind in "biufc":
            return _numbers(torch.as_tensor(np.ascontiguousarray(value)))
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case list() | tuple():
            return [_plain(item) for item in value]
        case set() | frozenset():
            return [_plain(item) for item in sorted(value, key=repr)]
        case float() if value != value:  # a NaN does not equal itself
            return "nan"
        case Enum():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _numbers(tensor: Tensor) -> Plain:
    """The values of a tensor, or a checksum of many."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_meta or tensor.numel() > SMALL:
        shape = " x ".join(map(str, tensor.shape))
        if tensor.is_meta:
            return f"{shape} numbers"
        wide = tensor.double() if tensor.is_floating_point() else tensor
        data = wide.detach().cpu().contiguous().numpy()
        return f"{shape} numbers, checksum {_checksum(data)}"
    return _plain(tensor.tolist())


def _plain_text(key: object) -> str:
    return str(_plain(key)) if _is_plain(key) else _name(type(key))


def _public(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if not key.startswith("_")}


def _of_torch(thing: type | Callable[..., Any]) -> bool:
    return (thing.__module__ or "").partition(".")[0] == "torch"


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _checksum(data: Any) -> str:
    given = data.encode() if isinstance(data, str) else data
    return hashlib.blake2b(given, digest_size=8).hexdigest()
