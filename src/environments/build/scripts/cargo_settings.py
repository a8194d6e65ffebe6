"""Tells cargo about vendored crates in the project's own `.cargo/config.toml`.

Cargo takes sources from files only, and looks for them beside the project. Arguments: the
directory of the project and that of the crates.
"""

import os
import sys

project, vendored = sys.argv[1:]
with open(f"{vendored}/settings.toml") as file:
    settings = file.read().strip()
if not settings:
    print("the project needs no crates")
    sys.exit()
os.makedirs(f"{project}/.cargo", exist_ok=True)
old = f"{project}/.cargo/config"
path = old if os.path.exists(old) else f"{old}.toml"
present = open(path).read() if os.path.exists(path) else ""
if "[source" in present:
    print("the project's own cargo configuration names sources, so it is left as it is")
    sys.exit()
with open(path, "a") as file:
    file.write(f"{present and chr(10)}# The crates of this version; added by its build.\n{settings}\n")
print(f"added the vendored crates to {os.path.relpath(path, project)} of the version")
