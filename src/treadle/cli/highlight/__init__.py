"""Code in colours, line by line as it comes."""
