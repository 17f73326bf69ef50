"""A node with deliberate bugs of `tests/simulated/mutants.txt`, to see that tests on a real broker catch them.

    python -m tests.real.membership.planted "NAME; NAME" serve --set …

No file is touched: the bugs are in what this process imports, which is the pure build.
"""

import runpy
import sys

from tests.simulated.mutants import plant

if __name__ == "__main__":
    plant(sys.argv.pop(1).split("; "))
    runpy.run_module("holdfast", run_name="__main__")
