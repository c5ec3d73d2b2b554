"""The input editor below the conversation: keys, completion, layout."""
