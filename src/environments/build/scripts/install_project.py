"""Builds the project's wheel with the kept build tools and installs it.

It is what `pip install --no-deps --no-build-isolation .` does, in two processes instead of four.
Arguments: the directory of the build tools, the build backend, pip.
Exit status 90 says that the backend asks for more than is kept.
"""

import importlib
import os
import sys
import tempfile

tools, backend, pip = sys.argv[1:4]
sys.path.insert(0, tools)
sys.argv[1:] = []
module, _, attributes = backend.partition(":")
hooks = importlib.import_module(module)
for name in filter(None, attributes.split(".")):
    hooks = getattr(hooks, name)
if getattr(hooks, "get_requires_for_build_wheel", lambda: [])():
    sys.exit(90)
out = tempfile.mkdtemp()
wheel = os.path.join(out, hooks.build_wheel(out))
sys.stdout.flush()
os.execv(pip, [pip, "install", "--no-deps", "--no-index", wheel])
