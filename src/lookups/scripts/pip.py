"""Runs the pip of the toolchain, or the one it makes virtual environments with."""

import glob
import os
import runpy
import sys
import sysconfig

try:
    import pip  # noqa: F401
except ImportError:
    import ensurepip

    bundled = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
    for directory in bundled, sysconfig.get_config_var("WHEEL_PKG_DIR") or bundled:
        for wheel in sorted(glob.glob(os.path.join(directory, "pip-*.whl"))):
            sys.path.insert(0, wheel)
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
