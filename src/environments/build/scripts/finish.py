"""Compiles the project's own modules and prints the installed packages as JSON.

Nobody can write compiled modules into a version later. Modules that do not compile are left as
they are: a project can hold files for other versions of Python.
Argument: the directory of the project.
"""

import compileall
import importlib.metadata
import json
import os
import sys

for entry in os.scandir(sys.argv[1]):
    if entry.name in (".venv", "node_modules"):
        continue
    if entry.is_dir(follow_symlinks=False):
        compileall.compile_dir(entry.path, quiet=2)
    elif entry.name.endswith(".py"):
        compileall.compile_file(entry.path, quiet=2)

installed = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
installed.pop("pip", None)
packages = [{"name": name, "version": version} for name, version in sorted(installed.items()) if name]
json.dump(packages, sys.stdout)
