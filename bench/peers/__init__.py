"""What people would pick instead: installed by name into environments of their own, skipped with a word where not."""
