"""Tells what the Debian sources of the host have of one package, as apt-cache does.

Nothing is installed. The argument is the package; standard input is a tar archive of where the host
gets packages from (`etc`), of its settings (`apt.conf`) and of what it has (`status`).
"""

import os
import subprocess
import sys
import tarfile

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
APT::Color "false";
Debug::NoLocking "true";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
"""
    )
os.environ["APT_CONFIG"] = f"{work}/apt.conf"
update = ["apt-get", "-q", "update", "-oAPT::Update::Error-Mode=any"]
if subprocess.run(update, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode != 0:
    sys.exit(1)
print("asked", flush=True)
sys.exit(subprocess.run(["apt-cache", "madison", "--", sys.argv[1]]).returncode)
