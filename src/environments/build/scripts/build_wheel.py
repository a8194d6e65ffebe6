"""Builds the project's wheel with the kept build tools.

It is what `pip wheel --no-deps --no-build-isolation .` does, in one process instead of three.
Arguments: the directory of the build tools, the build backend, where the wheel goes.
Exit status 90 says that the backend asks for more than is kept.
"""

import importlib
import os
import sys

tools, backend, target = sys.argv[1:4]
sys.path.insert(0, tools)
sys.argv[1:] = []
module, _, attributes = backend.partition(":")
hooks = importlib.import_module(module)
for name in filter(None, attributes.split(".")):
    hooks = getattr(hooks, name)
if getattr(hooks, "get_requires_for_build_wheel", lambda: [])():
    sys.exit(90)
os.mkdir(target)
hooks.build_wheel(target)
