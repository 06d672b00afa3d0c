"""The socket server: clients, what they send, JSON-RPC, replies and notifications."""
