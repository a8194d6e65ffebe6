"""Compiles Python modules and prints the installed packages as JSON.

Nobody can write compiled modules into a version later. Modules that do not compile are left as
they are: a project can hold files for other versions of Python.
Arguments: the directory of the project, and `all` where the installer did not compile packages.
"""

import compileall
import importlib.metadata
import json
import os
import sys

project, what = sys.argv[1:]
for entry in os.scandir(project):
    if entry.name in (".venv", "node_modules", "apt", ".go-modules", ".gems", ".cargo-vendor"):
        continue
    if entry.is_dir(follow_symlinks=False):
        compileall.compile_dir(entry.path, quiet=2)
    elif entry.name.endswith(".py"):
        compileall.compile_file(entry.path, quiet=2)
if what == "all":
    compileall.compile_dir(f"{project}/.venv/lib", quiet=2, workers=0)

installed = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
installed.pop("pip", None)
packages = [
    {"manager": "pip", "name": name, "version": version}
    for name, version in sorted(installed.items())
    if name
]
json.dump({"packages": packages}, sys.stdout)
