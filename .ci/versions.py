"""Tests both floors with the oldest and the newest versions that the metadata allow.

python .ci/versions.py                   # two environments for each floor
python .ci/versions.py --torch 2.12.1    # this torch instead of its oldest and its newest

The oldest are the lower bounds in pyproject.toml. What is not under test is pinned as always.
"""

import argparse
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-versions"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# PyPI's torch brings gigabytes of CUDA on Linux, and another index may hold it, too.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
REFUSE_CUDA = """
import sys
from importlib.metadata import requires
sys.exit("This torch needs CUDA." if any("nvidia" in each for each in requires("torch")) else 0)
"""
GROUND = ["tests/ground"]
UPPER = ["tests", "--ignore", "tests/ground", "--ignore", "tests/docs"]


def lower_bounds(requirements: Iterable[str]) -> dict[str, str]:
    """The version that each requirement names as its oldest."""
    return dict(requirement.split(">=") for requirement in requirements if ">=" in requirement)


def constraints(free: Iterable[str], pins: dict[str, str]) -> str:
    """The project's constraints, but for the packages that are free or pinned otherwise."""
    released = {*free, *pins}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.split("==")[0] not in released]
    return "\n".join([*kept, *(f"{name}=={version}" for name, version in pins.items())])


class Environment:
    """A fresh virtual environment, in which a part of the tests runs."""

    def __init__(self, name: str, constrained: str) -> None:
        self.name = name
        self.folder = FOLDER / name
        self.constraints = FOLDER / f"{name}.txt"
        self.failed = False
        venv.create(self.folder, with_pip=True, clear=True)
        self.constraints.write_text(constrained, encoding="utf-8")

    def run(self, *arguments: str) -> None:
        """Run this environment's Python; after a failure nothing else runs."""
        if not self.failed:
            command = [str(self.folder / "bin" / "python"), *arguments]
            self.failed = subprocess.run(command, cwd=ROOT).returncode != 0

    def install(self, *arguments: str) -> None:
        self.run("-m", "pip", "install", "--quiet", "-c", str(self.constraints), *arguments)

    def test(self, paths: list[str]) -> None:
        self.run("-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *paths)

    def versions(self, packages: Iterable[str]) -> str:
        """The versions that were tested."""
        command = [str(self.folder / "bin" / "python"), "-m", "pip", "freeze"]
        frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        pattern = rf"(?m)^(?:{'|'.join(packages)})==\S+"
        return ", ".join(re.findall(pattern, frozen)) or "not installed"


def ground(name: str, pins: dict[str, str], packages: list[str]) -> Environment:
    """Test the ground floor with these versions of its packages."""
    environment = Environment(f"ground-{name}", constraints(packages, pins))
    environment.install("-e", ".[dev-ground]")
    environment.test(GROUND)
    return environment


def upper(version: str | None) -> Environment:
    """Test the upper floor with a version of torch, by default with the newest."""
    environment = Environment(f"torch-{version or 'newest'}", constraints(["torch"], {}))
    torch = "torch" if version is None else f"torch=={version}"
    environment.install("--no-deps", "--index-url", TORCH_INDEX, torch)
    environment.run("-c", REFUSE_CUDA)
    environment.install("-e", ".[dev]")
    environment.test(UPPER)
    return environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="append", help="a version of torch to test")
    asked = parser.parse_args()

    oldest = lower_bounds(PROJECT["dependencies"])
    packages = list(oldest)
    oldest_torch = lower_bounds(PROJECT["optional-dependencies"]["torch"])["torch"]
    tested = [ground("oldest", oldest, packages), ground("newest", {}, packages)]
    tested += [upper(version) for version in asked.torch or [oldest_torch, None]]
    for environment in tested:
        outcome = "FAILED" if environment.failed else "passed"
        print(f"{outcome} {environment.name}: {environment.versions([*packages, 'torch'])}")
    return int(any(environment.failed for environment in tested))


if __name__ == "__main__":
    sys.exit(main())
