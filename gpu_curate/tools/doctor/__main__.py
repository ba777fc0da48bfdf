"""One probe, for the process that it has to itself."""

import sys

from gpu_curate.tools.doctor.probes import answer

if __name__ == "__main__":
    answer(sys.argv[1])
