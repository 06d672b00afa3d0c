"""The MCP server that agent CLIs start: ``fleetctl mcp`` of this very installation.

They name it by its path, so that they find it whatever their environment contains.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from fleetctl.__main__ import main

    main(["mcp", *sys.argv[1:]])
