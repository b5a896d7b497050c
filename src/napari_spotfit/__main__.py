"""``python -m napari_spotfit``: the command, wherever its script is not on the path."""

from .command_line.main import main

if __name__ == "__main__":
    main(prog_name="napari-spotfit")
