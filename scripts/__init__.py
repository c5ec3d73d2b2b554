"""What the Makefile runs beside the tests."""
