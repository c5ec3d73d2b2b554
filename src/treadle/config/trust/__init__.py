"""Whether the file of a working directory may be used: what it would do, and who agreed to it."""
