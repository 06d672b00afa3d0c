"""The guided tour behind ``fleetctl demo``: a fleet loses an agent and gets its work back.

Real processes, a real daemon and a real repository, all in a temporary directory.
"""
