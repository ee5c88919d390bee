"""`python -m crossling` is `crossling`."""

from crossling.cli import main

if __name__ == "__main__":
    main()
