"""`python -m gpu_curate` is `gpu-curate`."""

import sys

# `-m` puts the current folder first among the places of modules: a pickle.py among the data would run. The package is
# found already. What stands there by the user's PYTHONPATH stands further behind, too.
if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]

from gpu_curate.cli import main

if __name__ == "__main__":  # not in a spawned worker, which imports this module by its name
    main()
