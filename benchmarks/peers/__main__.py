"""``python -m benchmarks.peers``: create the peers' environments once, if there is a network."""

from .environments import PEERS, make


def main() -> None:
    """Print the environments that could not be created; the peers' rows report it too."""
    for peer in PEERS:
        if why := make(peer):
            print(f"{peer.name}: {why}")


if __name__ == "__main__":
    main()
