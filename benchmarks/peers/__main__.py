"""``python -m benchmarks.peers``: make the peers' environments, once; without a network go on."""

from .environments import PEERS, make


def main() -> None:
    """Say what could not be made; its rows then say so too."""
    for peer in PEERS:
        if why := make(peer):
            print(f"{peer.name}: {why}")


if __name__ == "__main__":
    main()
