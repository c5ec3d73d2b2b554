"""What becomes of figures: medians and spread, tables, plots, goals, and their place in docs/performance.md."""
