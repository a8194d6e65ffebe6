"""Builds the project's wheel with the kept build tools and installs it below another root.

It is what `pip install --no-deps --no-build-isolation .` does. The other root is there because the
packages of the environment may still be copied meanwhile: what the project brings is put over
them afterwards, as if it had been installed last.
Arguments: the directory of the build tools, the build backend, the environment's directory, and
the root. The root appears when all is in it.
"""

import compileall
import importlib
import os
import sys
import tempfile

tools, backend, environment, root = sys.argv[1:]
wheels, made = tempfile.mkdtemp(), tempfile.mkdtemp()


def build_wheel():
    sys.path.insert(0, tools)
    sys.argv[1:] = []
    module, _, attributes = backend.partition(":")
    hooks = importlib.import_module(module)
    for name in filter(None, attributes.split(".")):
        hooks = getattr(hooks, name)
    if getattr(hooks, "get_requires_for_build_wheel", lambda: [])():
        sys.exit("the backend asks for more than is kept")
    hooks.build_wheel(wheels)


# The backend has a process of its own: it changes what it likes, and pip is loaded beside it.
builder = os.fork()
if builder == 0:
    build_wheel()
    sys.exit()
from pip._internal.cli.main import main as pip

_, status = os.waitpid(builder, 0)
if status != 0:
    sys.exit(1)
# What pip writes into the programs of the project.
sys.executable = f"{environment}/.venv/bin/python"
options = ["--no-deps", "--no-index", "--ignore-installed", "--no-compile"]
where = ["--root", made, "--prefix", f"{environment}/.venv"]
if pip(["install", *options, *where, os.path.join(wheels, os.listdir(wheels)[0])]) != 0:
    sys.exit(1)
compileall.compile_dir(made, quiet=2, stripdir=made, prependdir="/")
os.rename(made, root)
