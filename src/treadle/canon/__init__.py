"""The canonical nouns: what every room of Treadle speaks, and nothing that does IO."""
