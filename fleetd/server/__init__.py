"""The socket: who connects, what they send, JSON-RPC, replies and notifications."""
