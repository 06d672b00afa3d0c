"""What fleetd adds to the requests that agent CLIs send to a model."""
