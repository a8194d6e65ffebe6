"""Lets apt take packages from where the host does. Goes before a script that asks apt.

Standard input: a tar archive of where the host gets packages from (`etc`), of its settings
(`apt.conf`) and of what it has (`status`). Nothing of the host is changed, and nothing is installed.
"""

import os
import subprocess
import sys
import tarfile


def use_sources(retries, timeout):
    """Points apt at a directory of its own, which it answers, with what standard input holds."""
    work = os.path.join(os.environ["HOME"], ".hangar-apt")
    tarfile.open(fileobj=sys.stdin.buffer, mode="r|").extractall(work)
    if not os.path.isdir(f"{work}/etc"):
        sys.exit("the host names no place to get Debian packages from")
    for directory in "state/lists/partial", "cache/archives/partial", "log", "none":
        os.makedirs(f"{work}/{directory}", exist_ok=True)
    with open(f"{work}/apt.conf", "a") as settings:
        settings.write(
            f"""
Dir::Etc "{work}/etc";
Dir::Etc::main "{work}/none.conf";
Dir::Etc::parts "{work}/none";
Dir::State "{work}/state";
Dir::State::status "{work}/status";
Dir::Cache "{work}/cache";
Dir::Log "{work}/log";
APT::Sandbox::User "";
APT::Install-Recommends "false";
APT::Color "false";
Debug::NoLocking "true";
Acquire::Languages "none";
Acquire::Retries "{retries}";
Acquire::http::Timeout "{timeout}";
Acquire::https::Timeout "{timeout}";
"""
        )
    os.environ["APT_CONFIG"] = f"{work}/apt.conf"
    return work
