"""Makes folders for what graphs leave: of one model there are forward and backward graphs, and those of other sizes."""

import itertools
import os


def folder_of_its_own(folder: str | os.PathLike) -> str:
    """A new folder in another one, for one graph."""
    for number in itertools.count():
        own = os.path.join(folder, f"graph{number}")
        try:
            os.makedirs(own)
        except FileExistsError:
            continue
        return own
