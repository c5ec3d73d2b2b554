"""What came of a run of scenarios: its folder, its statistics, its tables and pages, and how two of them compare."""
