"""``python -m pgherd``: the same as the command ``pgherd``."""

from pgherd.cli.main import main

if __name__ == "__main__":
    main()
