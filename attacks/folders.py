"""Crafted run folders: their checksums are right, what they hold is not."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from attacks import made
from attacks.judge import Case
from evalign.cli import run as runs
from tests.forged import forge
from tests.ground.cli.commands import invoke, sign


def refused(command: list[Any]) -> str | None:
    result = invoke(*command)
    lines = result.err.splitlines()
    ok = result.code == 2 and len(lines) == 1 and not result.out
    return None if ok else f"code {result.code}, {result.err[-300:]!r}"


def forged(change: Callable[[Path], None], command: str) -> Callable[[], str | None]:
    def act() -> str | None:
        run = made.copy_of(made.run())
        change(run)
        out = run.parent / "out.csv"
        predict = ["predict", run, made.data(), "--out", out]
        why = refused(predict if command == "predict" else ["report", run])
        return why or ("a file was left" if out.exists() else None)

    return act


def odd_files(_: Any) -> Iterator[Case]:
    """Links out of the folder, pipes, devices, folders in the place of files."""
    kinds: dict[str, Callable[[Path], None]] = {
        "pipe": os.mkfifo,
        "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "/dev/stdin": lambda path: path.symlink_to("/dev/stdin"),
        "outside": lambda path: path.symlink_to(made.data()),
        "loop": lambda path: path.symlink_to(path.name),
        "nowhere": lambda path: path.symlink_to("nosuch"),
        "folder": Path.mkdir,
    }
    names = ["run.json", "details.json", "metrics.json", runs.PREDICTIONS]
    names += ["model"]
    for name in names:
        for kind, put in kinds.items():

            def change(run: Path, name: str = name, put: Callable[[Path], None] = put) -> None:
                (run / name).unlink()
                put(run / name)
                if name != "run.json":
                    sign(run)

            for command in ("predict", "report"):
                yield Case(f"{name} is a {kind}, {command}", forged(change, command))


def outside(_: Any) -> Iterator[Case]:
    for name in ("../data.csv", "/etc/passwd", "a/../../data.csv", "\0", "", ".", "x" * 5000):

        def change(run: Path, name: str = name) -> None:
            files = json.loads((run / "run.json").read_text())["files"]
            sign(run, files=files | {name: "0" * 64})

        yield Case(f"run.json names {name[:20]!r}", forged(change, "report"))


def bombs(rng: Any) -> Iterator[Case]:
    """Small files that are large in memory."""

    def many_rows(run: Path, kind: str) -> None:
        schema = parquet.read_schema(run / runs.PREDICTIONS).remove_metadata()
        with parquet.ParquetWriter(run / runs.PREDICTIONS, schema, compression=kind) as writer:
            template = parquet.read_table(made.run() / runs.PREDICTIONS).slice(0, 1)
            block = pa.concat_tables([template.replace_schema_metadata()] * 2**8).combine_chunks()
            block = pa.concat_tables([block] * 2**8).combine_chunks()
            block = pa.concat_tables([block] * 2**5).combine_chunks()
            for _ in range(16):
                writer.write_table(block)
        sign(run)

    for kind in ("zstd", "snappy"):
        yield Case(
            f"{runs.PREDICTIONS} of 33 million equal rows, {kind}",
            forged(lambda run, k=kind: many_rows(run, k), "report"),
        )

    def sparse(run: Path, name: str) -> None:
        with (run / name).open("r+b") as file:
            file.truncate(runs.LARGEST + 1)
        sign(run)

    name = "details.json"
    yield Case(f"{name} of one byte too many", forged(lambda run: sparse(run, name), "report"))


def json_files(rng: Any) -> Iterator[Case]:
    """JSON of another shape: nested without end, huge numbers, other types."""
    contents = [b"", b"{", b"[]", b"3", b"null", b"NaN", b"1e999", b'{"model": []}', b"[" * 10**5]
    contents += [b'"' + b"x" * 10**6 + b'"', b"9" * 5000, b'{"a":' * 10**4 + b"1" + b"}" * 10**4]
    contents += [rng.bytes(100), b"\xef\xbb\xbf{}", '{"\ud83d": 1}'.encode("utf-16-le", "ignore")]
    for name in (
        "details.json",
        "state_json",
        "manifest_json",
        "tensors_safetensors",
        "arrays/0.npy",
    ):
        for content in contents:

            def change(run: Path, name: str = name, content: bytes = content) -> None:
                if name == "details.json":
                    (run / name).write_bytes(content)
                else:
                    forge(run / "model", **{name: content})
                sign(run)

            label = f"{name} is {content[:12]!r}"
            command = "report" if name == "details.json" else "predict"
            yield Case(label, forged(change, command))


ATTACKS = {
    "crafted run: links, pipes, devices": odd_files,
    "crafted run: paths outside": outside,
    "crafted run: bombs, forged sizes": bombs,
    "crafted run: other JSON": json_files,
}
