"""`python -m gpu_curate` is `gpu-curate`."""

from gpu_curate.cli import main

if __name__ == "__main__":  # not in a spawned worker, which imports this module by its name
    main()
