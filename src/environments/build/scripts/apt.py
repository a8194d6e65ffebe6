"""Downloads Debian packages and what of their dependencies the toolchain lacks, and unpacks them.

Nothing is installed: the toolchain is read-only, so no maintainer script runs, and a package that
needs one does not work. Arguments: the directory to unpack into, and the packages. Standard input:
a tar archive of where the host gets packages from (`etc`), of its settings (`apt.conf`) and of
what it has (`status`). What is unpacked is listed in `var/lib/dpkg/status` of the directory.
"""

import glob
import os
import subprocess
import sys
import tarfile

into, *names = sys.argv[1:]
work = os.path.join(os.environ["HOME"], ".hangar-apt")
if os.path.lexists(into):
    sys.exit("the project has a file or directory apt of its own, where the packages would be put")
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
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"""
    )
os.environ["APT_CONFIG"] = f"{work}/apt.conf"


def run(*command):
    sys.stdout.flush()
    status = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    if status != 0:
        sys.exit(status)


run("apt-get", "-q", "update", "-oAPT::Update::Error-Mode=any")
run("apt-get", "-q", "-y", "--download-only", "install", *names)
archives = sorted(glob.glob(f"{work}/cache/archives/*.deb"))
if any(os.path.basename(archive).startswith(("libc6_", "libc-bin_")) for archive in archives):
    sys.exit("a package needs another C library than the host has; upgrade the host's packages")
os.makedirs(f"{into}/var/lib/dpkg")
with open(f"{into}/var/lib/dpkg/status", "wb") as status:
    for archive in archives:
        print("unpacking", os.path.basename(archive))
        run("dpkg-deb", "-x", archive, into)
        control = subprocess.run(["dpkg-deb", "-f", archive], check=True, stdout=subprocess.PIPE)
        status.write(b"Status: install ok unpacked\n" + control.stdout.rstrip() + b"\n\n")
print(
    f"unpacked {len(archives)} packages; what else they need the host has; "
    "no maintainer script was run"
)
