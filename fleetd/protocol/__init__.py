"""What crosses the socket: requests, records, events, errors, frames; stdlib and msgspec only."""
