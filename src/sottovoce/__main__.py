"""`python -m sottovoce` is the command line."""

from sottovoce.cli.main import main

if __name__ == "__main__":
    main()
