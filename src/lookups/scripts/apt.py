# Tells what the Debian sources of the host have of one package, as apt-cache does.
#
# The argument is the package. `apt_sources.py` of the builds goes before this.

use_sources(retries=1, timeout=10)
update = ["apt-get", "-q", "update", "-oAPT::Update::Error-Mode=any"]
if subprocess.run(update, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode != 0:
    sys.exit(1)
print("asked", flush=True)
sys.exit(subprocess.run(["apt-cache", "madison", "--", sys.argv[1]]).returncode)
