"""Asks installers what they installed and prints it as JSON.

Each function below asks one of them, and yields names and versions.
Arguments: the directory of the project, and the installers.
"""

import json
import os
import re
import shutil
import subprocess
import sys

project, *asked = sys.argv[1:]


def told(*command, **variables):
    """The output of a program; some end with a status although they tell everything."""
    environment = {**os.environ, **variables}
    ended = subprocess.run(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if ended.returncode != 0 and not ended.stdout.strip():
        lines = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
        raise RuntimeError(lines[-1])
    return ended.stdout


def npm():
    # npm keeps a record of what it installed; reading it takes no process.
    record = f"{project}/node_modules/.package-lock.json"
    if not os.path.exists(record):
        yield from tree(json.loads(told("npm", "ls", "--all", "--json")).get("dependencies", {}))
        return
    with open(record) as file:
        packages = json.load(file).get("packages", {})
    for path, package in packages.items():
        if "version" in package and not package.get("link"):
            yield package.get("name") or path.rpartition("node_modules/")[2], package["version"]


def tree(dependencies):
    for name, package in dependencies.items():
        if "version" in package and ":" not in package["version"]:
            yield package.get("from", name).split("@npm:")[0], package["version"]
        yield from tree(package.get("dependencies", {}))


def pnpm():
    for root in json.loads(told("pnpm", "list", "--recursive", "--json", "--depth", "Infinity")):
        for kind in "dependencies", "devDependencies", "optionalDependencies":
            yield from tree(root.get(kind, {}))


def yarn():
    def flat(trees):
        for each in trees:
            if not each.get("shadow"):
                name, _, version = each["name"].rpartition("@")
                yield name, version
            yield from flat(each.get("children", []))

    for line in told("yarn", "list", "--json", "--no-progress").splitlines():
        record = json.loads(line)
        if record.get("type") == "tree":
            yield from flat(record["data"]["trees"])


def berry():
    own = glob_one(f"{project}/.yarnrc.yml", r"^yarnPath: *[\"']?([^\"'\n]+)")
    program = ("node", f"{project}/{own}") if own else (shutil.which("yarn-berry") or "yarn",)
    for line in told(*program, "info", "--all", "--recursive", "--json").splitlines():
        record = json.loads(line)
        name, _, locator = record["value"].rpartition("@")
        if locator.startswith("npm:") or "#npm:" in locator:
            yield name.split("@virtual")[0], record["children"]["Version"]


def glob_one(path, pattern):
    if not os.path.exists(path):
        return None
    with open(path) as file:
        found = re.search(pattern, file.read(), re.MULTILINE)
    return found and found[1].strip()


def apt():
    records = f"--admindir={project}/apt/var/lib/dpkg"
    for line in told("dpkg-query", records, "-W", "-f", "${Package}\t${Version}\n").splitlines():
        name, version = line.split("\t")
        yield name, version


def cargo():
    metadata = json.loads(told("cargo", "metadata", "--format-version", "1", "--locked", "--offline"))
    for package in metadata["packages"]:
        if package["source"]:
            yield package["name"], package["version"]


def go():
    vendored = f"{project}/vendor/modules.txt"
    if os.path.exists(vendored):
        with open(vendored) as file:
            yield from re.findall(r"^# (\S+) (v\S+)", file.read(), re.MULTILINE)
        return
    listed = told("go", "list", "-m", "-f", "{{if not .Main}}{{.Path}} {{.Version}}{{end}}", "all", GOPROXY="off")
    for line in filter(None, listed.splitlines()):
        name, _, version = line.partition(" ")
        yield name, version


def bundler():
    for name, version in re.findall(r"^  \* (\S+) \(([^ )]+)", told("bundle", "list"), re.MULTILINE):
        yield name, version


managers = {"pnpm": "npm", "yarn": "npm", "berry": "npm", "bundler": "gem"}
packages, failed = [], []
for installer in asked:
    try:
        found = sorted(set(globals()[installer]()))
    except Exception as error:
        failed.append(f"packages of {installer}: {error}")
        continue
    manager = managers.get(installer, installer)
    packages += [{"manager": manager, "name": name, "version": version} for name, version in found]
json.dump({"packages": packages, "failed": failed}, sys.stdout)
