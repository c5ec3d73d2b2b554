"""The edge of the network: what is bounded before there is a whole request."""
