"""The additions of fleetd to the requests that agent CLIs send to a model."""
