"""Results of evaluations: files, statistics, reports, comparisons."""
