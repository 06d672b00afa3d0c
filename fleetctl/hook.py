"""The program that agent CLIs run for each event: it starts the hook client from its bytecode.

Python caches no bytecode of the file that it runs. Compiling the client every time would take
longer than all that it does.
"""

import sys
from _frozen_importlib_external import SourceFileLoader

NAME = "hook_client"


def run() -> None:
    """Run the client, which ends the process."""
    file = f"{__file__.rpartition('/')[0]}/{NAME}.py"
    loader = SourceFileLoader(NAME, file)
    try:
        code = loader.get_code(NAME)
    except (EOFError, TypeError, ValueError):  # a power cut damaged the bytecode
        code = loader.source_to_code(loader.get_data(file), file)
    client: dict[str, object] = {"__name__": NAME}
    exec(code, client)  # type: ignore[arg-type]  # noqa: S102
    client["main"](sys.argv[1:])  # type: ignore[operator]


if __name__ == "__main__":
    run()
