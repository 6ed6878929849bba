"""Install the clients that others made, each in an environment of its own, at the versions of the lock files.

    python3 tests/foreign/install.py [NAME …] [--into FOLDER]

Needs Python 3.11 or later and npm, nothing of this project. What is there already is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

LOCKS = Path(__file__).parent / "locks"
FOLDER = Path(os.environ.get("SHAMPOO_FOREIGN") or Path(__file__).parents[2] / ".foreign")

# Each environment and the files that lock it; the one of npm has the clients written for Node, and Node itself.
ENVIRONMENTS = {
    "node": ("package.json", "package-lock.json"),
    "python-sdk": ("python-sdk.txt",),
    "pydantic-ai": ("pydantic-ai.txt",),
    "schemathesis": ("schemathesis.txt",),
    "openapi": ("openapi.txt",),
}


def lock_of(name: str) -> str:
    """Give the digest of an environment's lock files."""
    return hashlib.sha256(b"".join((LOCKS / file).read_bytes() for file in ENVIRONMENTS[name])).hexdigest()


def is_installed(name: str, into: Path = FOLDER) -> bool:
    """Tell whether an environment is there as its lock files say."""
    stamp = into / name / "installed"
    return stamp.exists() and stamp.read_text() == lock_of(name)


def install(name: str, into: Path) -> None:
    """Install one environment afresh; raises `subprocess.CalledProcessError`."""
    folder = into / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (_install_node if name == "node" else _install_python)(name, folder)
    (folder / "installed").write_text(lock_of(name))


def _install_node(name: str, folder: Path) -> None:
    for file in ENVIRONMENTS[name]:
        shutil.copy(LOCKS / file, folder)
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not on PATH (Debian: apt-get install npm)")
    # No package may run a program of its own. Their engines are checked against npm's Node, not the one installed here.
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    # Not `npm ci`: it refuses a lock file in which an optional package of another system was not to be had.
    subprocess.run([npm, "install", *quiet], cwd=folder, check=True)


def _install_python(name: str, folder: Path) -> None:
    venv.create(folder, with_pip=True)
    quiet = ("-q", "--no-deps", "--disable-pip-version-check")
    subprocess.run([folder / "bin/python", "-m", "pip", "install", *quiet, "-r", LOCKS / f"{name}.txt"], check=True)


def main() -> None:
    """Install what the line names, or everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ENVIRONMENTS)}; all by default")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER", help="SHAMPOO_FOREIGN, else .foreign")
    given = parser.parse_args()
    for name in given.names or ENVIRONMENTS:
        if name not in ENVIRONMENTS:
            parser.error(f"there is no environment {name!r}")
        if not is_installed(name, given.into):
            print(f"installing {name}", flush=True)
            install(name, given.into)


if __name__ == "__main__":
    main()
