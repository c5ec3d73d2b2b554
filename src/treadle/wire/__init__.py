"""One codec per protocol, in both directions, as pure translators between bytes and the canonical nouns."""
