# Downloads Debian packages and what of their dependencies the toolchain lacks, and unpacks them.
#
# Nothing is installed: the toolchain is read-only, so no maintainer script runs, and a package that
# needs one does not work. Arguments: the directory to unpack into, and the packages. What is unpacked
# is listed in `var/lib/dpkg/status` of the directory. `apt_sources.py` goes before this.

import glob

into, *names = sys.argv[1:]
if os.path.lexists(into):
    sys.exit("the project has a file or directory apt of its own, where the packages would be put")
work = use_sources(retries=2, timeout=30)


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
